import type { Context } from './context.js';
import { say } from './context.js';
import { whole } from './numbers.js';

const CHUNK_ROWS = 500_000;

/**
 * One chunk of succeeded charges, as the service would have left them: keys and external ids are random (UUID v4),
 * our own ids UUID v7 of their time. They were made over the last `span_h` hours, up to `age_h` hours ago.
 */
const MAKE_CHUNK = `
CREATE TEMP TABLE made ON COMMIT DROP AS
SELECT made_at,
       (stamp || '-7' || substr(gen_random_uuid()::text, 16))::uuid AS payment_id,
       (stamp || '-7' || substr(gen_random_uuid()::text, 16))::uuid AS operation_id,
       gen_random_uuid()::text AS key,
       'order-' || gen_random_uuid()::text AS external_payment_id,
       'customer-' || (n % 100000) AS customer_id,
       sha256(convert_to('command' || n, 'UTF8')) AS command_hash,
       sha256(convert_to('key' || n, 'UTF8')) AS key_hash
FROM (
  SELECT n, made_at, regexp_replace(lpad(to_hex((extract(epoch FROM made_at) * 1000)::bigint), 12, '0'), '^(.{8})', '\\1-') AS stamp
  FROM (SELECT n, clock_timestamp() - make_interval(secs => 3600 * ($3::float8 + $4::float8 * (1 - n::float8 / $5::float8))) AS made_at
        FROM generate_series($1::bigint, $2::bigint) AS n) AS timed
) AS stamped`;

const INSERT_PAYMENTS = `
INSERT INTO payment (id, client_id, provider, external_payment_id, command_hash, version, status, amount_minor, currency,
                     amount_captured_minor, customer_id, provider_payment_id, capture, history, created_at, updated_at)
SELECT payment_id, 'default', 'instant', external_payment_id, command_hash, 2, 'succeeded', 10000, 'RUB',
       10000, customer_id, 'instant_' || payment_id, 'automatic',
       jsonb_build_array(jsonb_build_object('at', made_at, 'from', 'processing', 'to', 'succeeded', 'version', 2,
                                            'cause', 'answer', 'operation_id', operation_id)),
       made_at, made_at
FROM made ORDER BY payment_id`;

const INSERT_OPERATIONS = `
INSERT INTO operation (id, payment_id, kind, status, amount_minor, idempotency_key, key_hash, command_hash, provider_key,
                       provider_payment_id, attempts_started, attempts_finished, first_attempt_at, last_attempt_at, attempts,
                       created_at, updated_at)
SELECT operation_id, payment_id, 'charge', 'succeeded', 10000, key, key_hash, command_hash, encode(key_hash, 'hex'),
       'instant_' || payment_id, 1, 1, made_at, made_at,
       jsonb_build_array(jsonb_build_object('action', 'charge', 'at', made_at, 'duration_ms', 1, 'outcome', 'succeeded')),
       made_at, made_at
FROM made ORDER BY payment_id`;

const INSERT_RECORDS = `
INSERT INTO idempotency_record (client_id, key, kind, command_hash, state, attempts_finished, payment_id, operation_id,
                                success_status, http_status, body, created_at, answered_at, expires_at)
SELECT 'default', key, 'charge', command_hash, 'done', 1, payment_id, operation_id, 201, 201,
       json_build_object('id', payment_id, 'status', 'succeeded', 'amount', '100.00', 'currency', 'RUB',
         'amount_captured', '100.00', 'amount_refunded', '0.00', 'customer_id', customer_id,
         'external_payment_id', external_payment_id, 'provider', 'instant', 'provider_payment_id', 'instant_' || payment_id,
         'payment_method', null, 'capture', 'automatic', 'order_id', null, 'description', null, 'metadata', null,
         'failure', null, 'next_action', null, 'created_at', made_at, 'updated_at', made_at)::text,
       made_at, made_at, made_at + interval '72 hours'
FROM made ORDER BY key`;

export interface Load {
  readonly rows: number;
  readonly tables: 'all' | 'records only';
  /** How old the youngest is, and over how many hours they were made. Answers are kept for 72 hours. */
  readonly age_h: number;
  readonly span_h: number;
}

/**
 * Answered rows are packed as they come to lie in the service's tables, where a short row is inserted and grows into the
 * room that fillfactor kept for it; inserted as they end, they would leave that room empty for good.
 */
const DENSE = 90;
const FILL_FACTORS = `
SELECT relname AS name, (SELECT option_value FROM pg_options_to_table(reloptions) WHERE option_name = 'fillfactor') AS fillfactor
FROM pg_class WHERE relname IN ('payment', 'operation', 'idempotency_record') AND relkind = 'r'`;

/** Fills the tables of a migrated database as `rows` charges would have, and brings their statistics up to date. */
export async function loadCharges(context: Context, database: string, load: Load): Promise<void> {
  const kept = await context.postgres.query(database, FILL_FACTORS);
  const setFillFactors = (sql: (row: Record<string, unknown>) => string): Promise<unknown> =>
    context.postgres.query(database, kept.rows.map((row) => `ALTER TABLE ${String(row.name)} ${sql(row)}`).join('; '));
  await setFillFactors(() => `SET (fillfactor = ${DENSE})`);
  const inserts = load.tables === 'all' ? [INSERT_PAYMENTS, INSERT_OPERATIONS, INSERT_RECORDS] : [INSERT_RECORDS];
  for (let from = 1; from <= load.rows; from += CHUNK_ROWS) {
    const to = Math.min(from + CHUNK_ROWS - 1, load.rows);
    await context.postgres.transaction(database, async (client) => {
      // Foreign keys hold by how the rows are made; checking each would take as long as the rest.
      await client.query('SET LOCAL session_replication_role = replica');
      await client.query(MAKE_CHUNK, [from, to, load.age_h, load.span_h, load.rows]);
      for (const insert of inserts) await client.query(insert);
    });
    if (to % (CHUNK_ROWS * 4) === 0) say(`  loaded ${whole(to)} of ${whole(load.rows)}`);
  }
  await setFillFactors((row) =>
    typeof row.fillfactor === 'string' ? `SET (fillfactor = ${row.fillfactor})` : 'RESET (fillfactor)',
  );
  await context.postgres.query(database, 'VACUUM (ANALYZE)');
  await context.postgres.admin.query('CHECKPOINT');
}
