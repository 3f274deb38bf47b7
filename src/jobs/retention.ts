import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import { inTransaction } from '../database/transaction.js';
import type { Logger } from '../logger.js';
import {
  deleteExpiredRecords,
  deleteProcessedEvents,
  deletePublishedEvents,
  lockRetention,
} from '../store/retention.js';

export interface RetentionOptions {
  readonly pool: pg.Pool;
  readonly logger: Logger;
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
  const isFirst = await sweepTable(options, swept, 'idempotency_record', (tx) => deleteExpiredRecords(tx, BATCH));
  if (!isFirst) return null;
  await sweepTable(options, swept, 'processed_event', (tx) =>
    deleteProcessedEvents(tx, BATCH, options.processed_event_retention_ms),
  );
  await sweepOutbox(options, swept);
  options.logger.info({ swept }, 'retention');
  return swept;
}

async function sweepTable(
  options: RetentionOptions,
  swept: Swept,
  table: keyof Swept,
  deleteBatch: (tx: pg.PoolClient) => Promise<number>,
): Promise<boolean> {
  for (let deleted = BATCH; deleted === BATCH && !options.isStopped?.();) {
    const result = await inTransaction(options.pool, async (tx) =>
      (await lockRetention(tx)) ? deleteBatch(tx) : null,
    );
    if (result === null) return false;
    deleted = result;
    swept[table] += deleted;
    options.countDeleted(table, deleted);
    await delay(options.pause_ms ?? PAUSE_MS);
  }
  return true;
}

async function sweepOutbox(options: RetentionOptions, swept: Swept): Promise<void> {
  let after: string | null = FIRST_ID;
  while (after !== null && !options.isStopped?.()) {
    const from: string = after;
    const page = await inTransaction(options.pool, async (tx) =>
      (await lockRetention(tx)) ? deletePublishedEvents(tx, from, BATCH, options.processed_event_retention_ms) : null,
    );
    if (page === null) return;
    swept.outbox_event += page.deleted;
    options.countDeleted('outbox_event', page.deleted);
    after = page.next_id;
    await delay(options.pause_ms ?? PAUSE_MS);
  }
}
