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

/** Deletes `done` records past their retention. R7: what is unfinished is never touched. Rows in use are left for later. */
export async function deleteExpiredRecords(tx: pg.PoolClient, limit: number): Promise<number> {
  const { rowCount } = await tx.query({
    name: 'retention_records',
    text: `with old as (
             select client_id, key from idempotency_record
             where state = 'done' and expires_at <= clock_timestamp()
             order by expires_at limit $1 for update skip locked
           )
           delete from idempotency_record r using old where r.client_id = old.client_id and r.key = old.key`,
    values: [limit],
  });
  return rowCount ?? 0;
}

/** Deletes marks of events that can't come again: their retention covers the longest redelivery. */
export async function deleteProcessedEvents(tx: pg.PoolClient, limit: number, retention_ms: number): Promise<number> {
  const { rowCount } = await tx.query({
    name: 'retention_processed',
    text: `with old as (
             select consumer_name, event_id from processed_event
             where processed_at <= clock_timestamp() - $2::bigint * interval '1 millisecond'
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
): Promise<{ readonly deleted: number; readonly next_id: string | null }> {
  const { rows } = await tx.query<{ deleted: number; seen: number; last_id: string | null }>({
    name: 'retention_outbox',
    text: `with page as (
             select id, published_at from outbox_event
             where id > $1 and created_at <= clock_timestamp() - $3::bigint * interval '1 millisecond'
             order by id limit $2
           ), gone as (
             delete from outbox_event e using page
             where e.id = page.id and page.published_at <= clock_timestamp() - $3::bigint * interval '1 millisecond'
             returning e.id
           )
           select (select count(*) from gone)::int as deleted, count(*)::int as seen, max(id::text)::uuid as last_id from page`,
    values: [after_id, limit, retention_ms],
  });
  const page = rows[0];
  if (!page) return { deleted: 0, next_id: null };
  return { deleted: page.deleted, next_id: page.seen === limit ? page.last_id : null };
}
