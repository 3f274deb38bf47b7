import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import { inTransaction } from '../database/transaction.js';
import type { Logger } from '../logger.js';
import {
  deleteExpiredRecords,
  deleteProcessedEvents,
  deletePublishedEvents,
  lockRetention,
  type Page,
} from '../store/retention.js';

export interface RetentionOptions {
  readonly pool: pg.Pool;
  readonly logger: Logger;
  readonly idempotency_retention_ms: number;
  readonly processed_event_retention_ms: number;
  readonly countDeleted: (table: string, rows: number) => void;
  /** Between two batches, so that charges have the disk in between. */
  readonly pause_ms?: number;
  /** Asked before each batch. */
  readonly isStopped?: () => boolean;
}

export interface Swept {
  idempotency_record: number;
  processed_event: number;
  outbox_event: number;
}

const BATCH = 1_000;
const PAUSE_MS = 50;
const FIRST_ID = '00000000-0000-0000-0000-000000000000';

/**
 * Deletes what is past its retention, in bounded batches with pauses, each in a transaction of its own under a lock that one
 * instance at a time has. Null: another instance is at it. A lock that can't be had in time ends the sweep: tried later.
 */
export async function sweep(options: RetentionOptions): Promise<Swept | null> {
  const swept: Swept = { idempotency_record: 0, processed_event: 0, outbox_event: 0 };
  const isFirst = await sweepPages(options, swept, 'idempotency_record', (tx, after_id) =>
    deleteExpiredRecords(tx, after_id, BATCH, options.idempotency_retention_ms),
  );
  if (!isFirst) return null;
  await sweepPages(options, swept, 'processed_event', async (tx, after_id) => {
    const deleted = await deleteProcessedEvents(tx, BATCH, options.processed_event_retention_ms);
    return { deleted, next_id: deleted === BATCH ? after_id : null };
  });
  await sweepPages(options, swept, 'outbox_event', (tx, after_id) =>
    deletePublishedEvents(tx, after_id, BATCH, options.processed_event_retention_ms),
  );
  options.logger.info({ swept }, 'retention');
  return swept;
}

async function sweepPages(
  options: RetentionOptions,
  swept: Swept,
  table: keyof Swept,
  deletePage: (tx: pg.PoolClient, after_id: string) => Promise<Page>,
): Promise<boolean> {
  let after: string | null = FIRST_ID;
  while (after !== null && !options.isStopped?.()) {
    const from: string = after;
    const page = await inTransaction(options.pool, async (tx) =>
      (await lockRetention(tx)) ? deletePage(tx, from) : null,
    );
    if (page === null) return false;
    swept[table] += page.deleted;
    options.countDeleted(table, page.deleted);
    after = page.next_id;
    await delay(options.pause_ms ?? PAUSE_MS);
  }
  return true;
}
