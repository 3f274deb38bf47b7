import type pg from 'pg';
import type { Operation, Payment } from '../domain/payment.js';
import { int2Array, int4Array, int8Array, textArray, timestamptzArray, uuidArray } from '../database/arrays.js';
import type { HistoryEntry } from '../domain/change.js';

/** One finished attempt at an operation, for the timeline. */
export interface AttemptRecord {
  readonly action: 'send' | 'ask' | 'close';
  readonly at: string;
  readonly duration_ms: number;
  readonly outcome: string;
}

/** An event with its id (UUID v7, made with the change) and its data, ready to be published as it stands. */
export interface OutboxRow {
  readonly id: string;
  readonly topic: string;
  readonly key: string;
  readonly sequence: number;
  readonly type: string;
  /** JSON text. */
  readonly data: string;
  readonly traceparent: string | null;
}

/**
 * The end of a charge by its own request: one payment, one operation, every answer that waits for it, one event.
 * It holds only while the lease is ours and the payment is at the version that it was decided on.
 */
export interface SettleItem {
  readonly token: string;
  readonly version_read: number;
  readonly payment: Payment;
  readonly history: HistoryEntry | null;
  readonly operation: Operation;
  readonly attempt: AttemptRecord;
  readonly check_at: Date | null;
  readonly answer: { readonly body: string; readonly http_status: number | null; readonly expires_at: Date };
  readonly event: OutboxRow;
}

// Lock first, then change: a chain of updates stored "succeeded" as the answer on a payment that a webhook had just
// failed. Order of locks everywhere: payment, operation, record. `ok` holds what may be written, a row for each record that
// waits for it; all writes read from it. Every row carries its input along, so that no two results are ever joined: such a
// join is a loop over both, quadratic in the batch.
const SETTLE = {
  name: 'settle',
  text: `
with i as (
  select * from unnest($1::uuid[], $2::integer[], $3::uuid[], $4::integer[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[],
                       $10::text[], $11::text[], $12::timestamptz[], $13::text[], $14::uuid[], $15::text[], $16::text[], $17::text[],
                       $18::timestamptz[], $19::timestamptz[], $20::text[], $21::smallint[], $22::timestamptz[],
                       $23::uuid[], $24::text[], $25::text[], $26::text[], $27::text[])
    as i(payment_id, version_read, token, version, status, amount_captured_minor, provider_payment_id, failure_code, failure_message,
         next_action_type, next_action_url, updated_at, history, operation_id, operation_status, operation_provider_payment_id, attempt,
         closed_at, check_at, body, http_status, expires_at,
         event_id, topic, event_type, data, traceparent)
), pays as materialized (
  select i.*, p.version as version_locked from i join payment p on p.id = i.payment_id order by p.id for no key update of p
), recs as materialized (
  select pays.*, r.client_id, r.key, r.success_status, r.lease_token is not distinct from pays.token as own
  from pays join idempotency_record r on r.operation_id = pays.operation_id and r.state <> 'done'
  where (select count(*) from pays) >= 0
  order by r.client_id, r.key for no key update of r
), ok as materialized (
  select * from (select *, bool_or(own) over (partition by operation_id) as held from recs) recs
  where held and version_locked = version_read
), pay as (
  update payment p
  set version = ok.version, status = ok.status, amount_captured_minor = ok.amount_captured_minor, provider_payment_id = ok.provider_payment_id,
      failure_code = ok.failure_code, failure_message = ok.failure_message, next_action_type = ok.next_action_type,
      next_action_url = ok.next_action_url, updated_at = ok.updated_at, history = p.history || ok.history::jsonb
  from ok where p.id = ok.payment_id and ok.own
), op as (
  update operation o
  set status = ok.operation_status, provider_payment_id = ok.operation_provider_payment_id, failure_code = ok.failure_code,
      failure_message = ok.failure_message, attempts_finished = o.attempts_finished + 1, attempts = o.attempts || ok.attempt::jsonb,
      closed_at = ok.closed_at, check_at = ok.check_at, updated_at = ok.updated_at
  from ok where o.id = ok.operation_id and ok.own
), rec as (
  update idempotency_record r
  set state = 'done', http_status = coalesce(ok.http_status, ok.success_status), body = ok.body, lease_token = null, lease_until = null,
      recover_at = null, attempts_finished = r.attempts_finished + 1, answered_at = ok.updated_at, expires_at = ok.expires_at
  from ok where r.client_id = ok.client_id and r.key = ok.key
), ev as (
  insert into outbox_event (id, topic, key, sequence, type, data, traceparent, created_at)
  select event_id, topic, payment_id::text, version, event_type, data::json, traceparent, updated_at from ok where own
)
select token from ok where own`,
};

/** Settles charges, at most one item per payment in a call. True: written, as a whole. False: nothing was. */
export async function settleCharges(
  connection: pg.Pool | pg.PoolClient,
  items: readonly SettleItem[],
): Promise<boolean[]> {
  const { rows } = await connection.query<{ token: string }>({ ...SETTLE, values: columns(items) });
  const settled = new Set(rows.map((row) => row.token));
  return items.map((item) => settled.has(item.token));
}

function columns(items: readonly SettleItem[]): Buffer[] {
  const payments = items.map((item) => item.payment);
  const operations = items.map((item) => item.operation);
  return [
    uuidArray(payments.map((payment) => payment.id)),
    int4Array(items.map((item) => item.version_read)),
    uuidArray(items.map((item) => item.token)),
    int4Array(payments.map((payment) => payment.version)),
    textArray(payments.map((payment) => payment.status)),
    int8Array(payments.map((payment) => payment.amount_captured_minor)),
    textArray(payments.map((payment) => payment.provider_payment_id)),
    textArray(payments.map((payment) => payment.failure?.code ?? null)),
    textArray(payments.map((payment) => payment.failure?.message ?? null)),
    textArray(payments.map((payment) => payment.next_action?.type ?? null)),
    textArray(payments.map((payment) => payment.next_action?.url ?? null)),
    timestamptzArray(payments.map((payment) => payment.updated_at)),
    textArray(items.map((item) => (item.history === null ? '[]' : JSON.stringify([item.history])))),
    uuidArray(operations.map((operation) => operation.id)),
    textArray(operations.map((operation) => operation.status)),
    textArray(operations.map((operation) => operation.provider_payment_id)),
    textArray(items.map((item) => JSON.stringify([item.attempt]))),
    timestamptzArray(operations.map((operation) => operation.closed_at)),
    timestamptzArray(items.map((item) => item.check_at)),
    textArray(items.map((item) => item.answer.body)),
    int2Array(items.map((item) => item.answer.http_status)),
    timestamptzArray(items.map((item) => item.answer.expires_at)),
    uuidArray(items.map((item) => item.event.id)),
    textArray(items.map((item) => item.event.topic)),
    textArray(items.map((item) => item.event.type)),
    textArray(items.map((item) => item.event.data)),
    textArray(items.map((item) => item.event.traceparent)),
  ];
}
