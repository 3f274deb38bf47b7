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
  /** Waits between two batches, where not for as long as charges need. */
  readonly rest?: (batch_ms: number) => Promise<unknown>;
  /** Asked before each batch. */
  readonly isStopped?: () => boolean;
}

export interface Swept {
  idempotency_record: number;
  processed_event: number;
  outbox_event: number;
}

/** A batch of 1,000 held one of two cores for 25 ms at a stretch, which every charge of that time felt. */
const BATCH = 200;
/** A sweep takes a fifth of the time at most, however slow the database is just then. */
const REST_PER_WORK = 4;
/** A batch that met a slow moment must not hold up the end of the process. */
const LONGEST_REST_MS = 1_000;
const FIRST_ID = '00000000-0000-0000-0000-000000000000';

/**
 * Deletes what is past its retention, in small batches with long pauses, each in a transaction of its own under a lock that one
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
  const rest = options.rest ?? ((batch_ms) => delay(Math.min(batch_ms * REST_PER_WORK, LONGEST_REST_MS)));
  let after: string | null = FIRST_ID;
  while (after !== null && !options.isStopped?.()) {
    const from: string = after;
    const begun_at = performance.now();
    const page = await inTransaction(options.pool, async (tx) =>
      (await lockRetention(tx)) ? deletePage(tx, from) : null,
    );
    if (page === null) return false;
    swept[table] += page.deleted;
    options.countDeleted(table, page.deleted);
    after = page.next_id;
    if (after !== null) await rest(performance.now() - begun_at);
  }
  return true;
}
