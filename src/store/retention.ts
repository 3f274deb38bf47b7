import type pg from 'pg';

/** Any number that no other lock of ours has. Transaction-scoped, so that PgBouncer works. */
const RETENTION_LOCK = 7_316_001;

/** True: this transaction is the only one that sweeps. */
export async function lockRetention(tx: pg.PoolClient): Promise<boolean> {
  const { rows } = await tx.query<{ locked: boolean }>({
    name: 'retention_lock',
    text: `select pg_try_advisory_xact_lock($1) as locked`,
    values: [RETENTION_LOCK],
  });
  return rows[0]?.locked ?? false;
}

/** Where a sweep of pages has got to; `next_id` null: at the end. */
export interface Page {
  readonly deleted: number;
  readonly next_id: string | null;
}

/**
 * The smallest id (UUID v7) of so many milliseconds ago. A subselect: read once, it bounds the index scan; as an expression
 * with the clock in it, it would be a filter over all ids to the end.
 */
const FIRST_ID_SINCE = (ago_ms: string): string =>
  `(select (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint - ${ago_ms}::bigint), 12, '0') || repeat('0', 20))::uuid)`;

/** Ids are made by the services' clocks, expiry is judged by the database's: pages go this much further than need be. */
const CLOCKS_APART_MS = 60 * 60_000;

/**
 * Deletes `done` records past their retention, a page of the index over operation ids (UUID v7: by age) at a time: an
 * index over the expiry would cost every charge a write and its answer the way past the indexes. What is not `done` is
 * never touched (R7), except that a reservation which nobody watches (its process died between the two statements of
 * `reserveAndBeginCharges`) is shown to the background job. Rows in use are left for the next sweep.
 */
export async function deleteExpiredRecords(
  tx: pg.PoolClient,
  after_id: string,
  limit: number,
  retention_ms: number,
): Promise<Page> {
  const { rows } = await tx.query<PageRow>({
    name: 'retention_records',
    text: `with page as (
             select client_id, key, operation_id from idempotency_record
             where operation_id > $1
               and operation_id < ${FIRST_ID_SINCE('$3')}
             order by operation_id limit $2
           ), old as (
             select r.client_id, r.key, r.state from page join idempotency_record r on r.client_id = page.client_id and r.key = page.key
             where r.expires_at <= clock_timestamp() or (r.recover_at is null and r.lease_until <= clock_timestamp())
             for update of r skip locked
           ), gone as (
             delete from idempotency_record r using old
             where r.client_id = old.client_id and r.key = old.key and old.state = 'done'
             returning 1
           ), watched as (
             update idempotency_record r set recover_at = r.lease_until from old
             where r.client_id = old.client_id and r.key = old.key and old.state = 'in_progress'
           )
           select (select count(*) from gone)::int as deleted, count(*)::int as seen, max(operation_id::text)::uuid as last_id from page`,
    values: [after_id, limit, retention_ms - CLOCKS_APART_MS],
  });
  return pageOf(rows[0], limit);
}

interface PageRow {
  readonly deleted: number;
  readonly seen: number;
  readonly last_id: string | null;
}

function pageOf(row: PageRow | undefined, limit: number): Page {
  if (!row) return { deleted: 0, next_id: null };
  return { deleted: row.deleted, next_id: row.seen === limit ? row.last_id : null };
}

/** Deletes marks of events that can't come again: their retention covers the longest redelivery. */
export async function deleteProcessedEvents(tx: pg.PoolClient, limit: number, retention_ms: number): Promise<number> {
  const { rowCount } = await tx.query({
    name: 'retention_processed',
    text: `with old as (
             select consumer_name, event_id from processed_event
             where processed_at <= (select clock_timestamp() - $2::bigint * interval '1 millisecond')
             order by processed_at limit $1 for update skip locked
           )
           delete from processed_event e using old where e.consumer_name = old.consumer_name and e.event_id = old.event_id`,
    values: [limit, retention_ms],
  });
  return rowCount ?? 0;
}

/**
 * Deletes published events past their retention, going through the ids (UUID v7: by age) once per sweep: an index on the time
 * of publishing would cost every event a write. Returns where to go on; null: the end.
 */
export async function deletePublishedEvents(
  tx: pg.PoolClient,
  after_id: string,
  limit: number,
  retention_ms: number,
): Promise<Page> {
  const { rows } = await tx.query<PageRow>({
    name: 'retention_outbox',
    text: `with page as (
             select id, published_at from outbox_event
             where id > $1 and id < ${FIRST_ID_SINCE('$4')} and created_at <= clock_timestamp() - $3::bigint * interval '1 millisecond'
             order by id limit $2
           ), gone as (
             delete from outbox_event e using page
             where e.id = page.id and page.published_at <= clock_timestamp() - $3::bigint * interval '1 millisecond'
             returning e.id
           )
           select (select count(*) from gone)::int as deleted, count(*)::int as seen, max(id::text)::uuid as last_id from page`,
    values: [after_id, limit, retention_ms, retention_ms - CLOCKS_APART_MS],
  });
  return pageOf(rows[0], limit);
}
