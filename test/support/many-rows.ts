import type pg from 'pg';
import type { Connection } from '../../src/database/transaction.js';

/** Tables full of what is done with, and what a statement reads of them: for tests of plans. */

export const FINISHED = 20_000;

/**
 * Charges that ended an hour ago, a millisecond after each other; their ids are of then. Each has its payment, operation,
 * record, outbox event and mark. To be planned with statistics it wants an ANALYZE afterwards.
 */
export async function insertFinished(tx: pg.PoolClient): Promise<void> {
  await tx.query(
    `create temp table made on commit drop as
     select i, gen_random_uuid() as payment_id, made_at,
            (lpad(to_hex((extract(epoch from made_at) * 1000)::bigint), 12, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid as id
     from (select i, date_trunc('milliseconds', now()) - interval '1 hour' + i * interval '1 millisecond' as made_at
           from generate_series(1, ${FINISHED}) i) as timed`,
  );
  await tx.query(
    `insert into payment (id, client_id, provider, external_payment_id, command_hash, status, amount_minor, currency, customer_id,
                          capture, created_at, updated_at)
     select payment_id, 'default', 'sandbox', 'finished-' || i, sha256('x'), 'succeeded', 100, 'EUR', 'c', 'automatic', made_at, made_at
     from made`,
  );
  await tx.query(
    `insert into operation (id, payment_id, kind, status, amount_minor, provider_key, created_at, updated_at)
     select id, payment_id, 'charge', 'succeeded', 100, 'key-' || i, made_at, made_at from made`,
  );
  await tx.query(
    `insert into idempotency_record (client_id, key, kind, command_hash, state, payment_id, operation_id, success_status, http_status, body, expires_at)
     select 'default', 'finished-' || i, 'charge', sha256('x'), 'done', payment_id, id, 201, 201, '{}', now() + interval '71 hours' from made`,
  );
  await tx.query(
    `insert into outbox_event (id, topic, key, sequence, type, data, published_at)
     select id, 't', payment_id::text, 2, 'x', '{}', now() from made`,
  );
  await tx.query(`insert into processed_event (consumer_name, event_id) select 'c', id::text from made`);
}

/** What was read, whatever became of it: `rows` by their index or one after the other, `pages` of tables and indexes. */
export interface Reads {
  readonly rows: number;
  readonly pages: number;
}

/**
 * What `run` reads through a connection, as the server counts it for one session; all it writes is undone.
 * @param connection one client, or a pool of one connection, for what asks for a pool
 */
export async function readsOf(connection: Connection, run: () => Promise<unknown>): Promise<Reads> {
  await connection.query('begin');
  try {
    // What parallel workers read is not in this session's counts.
    await connection.query('set local max_parallel_workers_per_gather = 0');
    const before = await readSoFar(connection);
    await run();
    const after = await readSoFar(connection);
    return { rows: after.rows - before.rows, pages: after.pages - before.pages };
  } finally {
    await connection.query('rollback');
  }
}

async function readSoFar(connection: Connection): Promise<Reads> {
  const { rows } = await connection.query<Reads>(
    `select sum(pg_stat_get_xact_tuples_returned(oid))::int as rows, sum(pg_stat_get_xact_blocks_fetched(oid))::int as pages
     from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'i')`,
  );
  const [read] = rows;
  if (read === undefined) throw new Error('the counts gave no row');
  return read;
}
