import type { Connection } from '../database/transaction.js';
import type { OutboxRow } from './settle.js';

/**
 * The outbox as the relay sees it. Rows are written by the statements that change payments, in their transactions.
 *
 * Order per key rests on three things, and on no lease: the events of a key are written under the lock of its payment,
 * so that whoever sees one sees all before it; a slice is read by key and sequence, so that it holds the first unsent
 * events of each of its keys; and a relay sends a later one only behind the earlier ones. The lease of a shard only
 * keeps two relays from sending the same rows twice.
 */

/** Also in the migration's index: both must stay alike. */
const SHARD_OF_KEY = '(hashtextextended(e.key, 0) & 15)::integer';
const UNSENT = 'e.published_at IS NULL AND e.quarantined_at IS NULL';

// None of these statements has a name: a plan that was made while the table was empty would stay (shared/sql-forms), and
// a relay sends too few of them for the planning to matter.

/** Where NOTIFY arrives, while `wanted` is set. */
export const OUTBOX_CHANNEL = 'oncepay_outbox';

/** A row as it was written, and what became of it. */
export interface StoredEvent extends OutboxRow {
  readonly attempts: number;
  readonly created_at: Date;
}

const ROW = 'e.id, e.topic, e.key, e.sequence, e.type, e.data::text AS data, e.traceparent, e.attempts, e.created_at';

const CLAIM = `
WITH free AS (
  SELECT s.shard FROM outbox_shard s
  WHERE (s.lease_until IS NULL OR s.lease_until < clock_timestamp())
    AND EXISTS (SELECT FROM outbox_event e WHERE ${SHARD_OF_KEY} = s.shard AND ${UNSENT})
  ORDER BY s.served_at, s.shard
  LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE outbox_shard s
SET lease_token = $1, lease_until = clock_timestamp() + $2::int * interval '1 millisecond', served_at = clock_timestamp()
FROM free WHERE s.shard = free.shard
RETURNING s.shard`;

/**
 * Takes the lease of up to `max_shards` shards that have unsent events, longest unserved first. Nobody waits: what
 * others hold is passed over. A relay that dies leaves its shards to others when `lease_ms` is over.
 */
export async function claimShards(
  connection: Connection,
  lease: { readonly token: string; readonly lease_ms: number; readonly max_shards: number },
): Promise<number[]> {
  const values = [lease.token, lease.lease_ms, lease.max_shards];
  const { rows } = await connection.query<{ shard: number }>(CLAIM, values);
  return rows.map((row) => row.shard);
}

// LATERAL: one descent of the partial index for each shard, whatever the planner thinks of the table's size.
const READ = `
SELECT x.* FROM unnest($1::int[]) AS shards(shard) CROSS JOIN LATERAL (
  SELECT ${ROW} FROM outbox_event e
  WHERE ${SHARD_OF_KEY} = shards.shard AND ${UNSENT}
  ORDER BY e.key, e.sequence, e.id LIMIT $2
) x
ORDER BY x.key, x.sequence, x.id`;

/**
 * The first unsent events of these shards, by key and sequence. A statement of its own, after the claim has committed:
 * in the claim's snapshot, events that the shard's holder before us marked at the last moment would look unsent.
 */
export async function readUnsent(
  connection: Connection,
  shards: readonly number[],
  rows_per_shard: number,
): Promise<StoredEvent[]> {
  const { rows } = await connection.query<StoredEvent>(READ, [shards, rows_per_shard]);
  return rows;
}

const FINISH = `
WITH sent AS (
  UPDATE outbox_event SET published_at = clock_timestamp() WHERE id = ANY($1::uuid[]) AND published_at IS NULL
), spoiled AS (
  UPDATE outbox_event e
  SET attempts = e.attempts + 1, last_error = f.error,
      quarantined_at = CASE WHEN e.attempts + 1 >= $4 THEN clock_timestamp() END
  FROM unnest($2::uuid[], $3::text[]) f(id, error)
  WHERE e.id = f.id AND e.published_at IS NULL
  RETURNING e.id, e.quarantined_at IS NOT NULL AS quarantined
), released AS (
  UPDATE outbox_shard SET lease_token = NULL, lease_until = NULL WHERE lease_token = $5
)
SELECT id FROM spoiled WHERE quarantined`;

export interface RoundResult {
  readonly token: string;
  /** What the broker has acknowledged. True whoever holds the lease by now. */
  readonly sent: readonly string[];
  /** What the broker refuses whatever else happens, with its words. */
  readonly refused: readonly { readonly id: string; readonly error: string }[];
  /** At which refusal a row is quarantined. */
  readonly max_attempts: number;
}

/** Unsent events for the gauges: up to 1,000 of each shard, the first of their keys. */
export const UNSENT_SINCE = `
SELECT e.created_at AS since FROM generate_series(0, 15) AS shards(shard) CROSS JOIN LATERAL (
  SELECT e.created_at FROM outbox_event e WHERE ${SHARD_OF_KEY} = shards.shard AND ${UNSENT} ORDER BY e.key, e.sequence LIMIT 1000
) e`;

/** Marks what was sent, counts what was refused, gives the shards back. @returns the ids that are now quarantined. */
export async function finishRound(connection: Connection, round: RoundResult): Promise<string[]> {
  const refused = [round.refused.map((row) => row.id), round.refused.map((row) => row.error.slice(0, 500))];
  const values = [round.sent, ...refused, round.max_attempts, round.token];
  const { rows } = await connection.query<{ id: string }>(FINISH, values);
  return rows.map((row) => row.id);
}

/** Whether a sleeping relay is to be woken by NOTIFY at the next insert. See the migration for what NOTIFY costs. */
export async function wantWakeUp(connection: Connection, wanted: boolean): Promise<void> {
  await connection.query('UPDATE outbox_wake SET wanted = $1 WHERE wanted <> $1', [wanted]);
}

export interface ReplayRange {
  readonly from: Date;
  /** Exclusive. */
  readonly to: Date;
  readonly topic: string | null;
  /** Only of this key (payment). */
  readonly key: string | null;
}

/**
 * The ids of what was published and was written in a time range, in the order of each key. Ids only, so that a long
 * range fits in memory; the rows follow by `readEvents`.
 */
export async function publishedIds(connection: Connection, range: ReplayRange): Promise<string[]> {
  const { rows } = await connection.query<{ id: string }>(
    `SELECT id FROM outbox_event
     WHERE created_at >= $1 AND created_at < $2 AND published_at IS NOT NULL
       AND ($3::text IS NULL OR topic = $3) AND ($4::text IS NULL OR key = $4)
     ORDER BY key, sequence, id`,
    [range.from, range.to, range.topic, range.key],
  );
  return rows.map((row) => row.id);
}

/** Events by their ids, in the order of the ids; what retention has deleted meanwhile is left out. */
export async function readEvents(connection: Connection, ids: readonly string[]): Promise<StoredEvent[]> {
  const { rows } = await connection.query<StoredEvent>(
    `SELECT ${ROW} FROM unnest($1::uuid[]) WITH ORDINALITY AS i(id, place) JOIN outbox_event e ON e.id = i.id ORDER BY i.place`,
    [ids],
  );
  return rows;
}
