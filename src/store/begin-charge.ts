import type pg from 'pg';
import { byteaArray, int8Array, textArray, uuidArray } from '../database/arrays.js';
import type { ChargeCommand } from '../domain/command.js';
import type { Operation, Payment } from '../domain/payment.js';
import type { Lease } from './reserve.js';

/** Where a command came from, beside HTTP: a saga's step, and the trace it belongs to. */
export interface Origin {
  readonly saga_id: string | null;
  readonly step_name: string | null;
  readonly traceparent: string | null;
}

export interface BeginChargeItem {
  readonly lease: Lease;
  readonly command: ChargeCommand;
  readonly key_hash: Buffer;
  readonly provider_key: string;
  readonly origin: Origin;
}

export type BeginChargeResult =
  /** Payment and operation are there, their first attempt counted; the provider may be called. */
  | { readonly type: 'begun'; readonly payment: Payment; readonly operation: Operation }
  /** The lease is somebody else's by now: nothing was written. */
  | { readonly type: 'lease_lost' }
  /** A payment of that name exists (perhaps our own, begun earlier): nothing was written. */
  | { readonly type: 'exists' };

// What a charge writes as it begins, from the rows of `source`. Both inserts name the rows that came before by a hashed
// subplan, `(x in (select …)) is true`: as a join it would be a loop over both, quadratic in the batch.
export const insertPayments = (source: string, condition: string): string => `
  insert into payment (id, client_id, provider, external_payment_id, command_hash, status, amount_minor, currency, customer_id,
                       payment_method, capture, order_id, description, metadata, return_url, created_at, updated_at)
  select payment_id, client_id, provider, external_payment_id, command_hash, 'processing', amount_minor, currency, customer_id,
         payment_method, capture, order_id, description, metadata::json, return_url, clock.now, clock.now
  from ${source}, clock ${condition}
  order by provider collate "C", external_payment_id collate "C"
  on conflict do nothing
  returning id`;
export const insertOperations = (source: string): string => `
  insert into operation (id, payment_id, kind, status, amount_minor, idempotency_key, key_hash, command_hash, provider_key, payment_method,
                         attempts_started, first_attempt_at, last_attempt_at, check_at, saga_id, step_name, traceparent, created_at, updated_at)
  select operation_id, payment_id, 'charge', 'processing', amount_minor, key, key_hash, command_hash, provider_key, payment_method,
         1, clock.now, clock.now, clock.lease_until, saga_id, step_name, traceparent, clock.now, clock.now
  from ${source}, clock
  where (payment_id in (select id from pay)) is true
  returning id`;
export const BEGIN_COLUMNS = `client_id, key, token, payment_id, operation_id, provider, external_payment_id, command_hash, amount_minor,
         currency, customer_id, payment_method, capture, order_id, description, metadata, return_url,
         key_hash, provider_key, saga_id, step_name, traceparent`;
export const BEGIN_ARRAYS = `$1::text[], $2::text[], $3::uuid[], $4::uuid[], $5::uuid[], $6::text[], $7::text[], $8::bytea[], $9::bigint[],
    $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[],
    $18::bytea[], $19::text[], $20::text[], $21::text[], $22::text[]`;

// The lease check locks the record: without it a final answer was stored and a payment begun afterwards. `on conflict`
// names no target: with one, an owner and a paused former owner that insert the same ids fail on the primary key.
// Rows go in in the order of the key they may conflict on; another order gave deadlocks.
const BEGIN = {
  name: 'begin_charge',
  text: `
with i as (
  select * from unnest(${BEGIN_ARRAYS}) as i(${BEGIN_COLUMNS})
), held as materialized (
  select i.* from i join idempotency_record r on r.client_id = i.client_id and r.key = i.key
  where r.lease_token = i.token
  order by r.client_id, r.key for no key update of r
), clock as materialized (
  select date_trunc('milliseconds', clock_timestamp()) as now, null::timestamptz as lease_until
), pay as (${insertPayments('held', '')}
), op as (${insertOperations('held')}
)
select held.token, (held.operation_id in (select id from op)) is true as begun, clock.now from held, clock`,
};

/** Begins charges of new payments, at most one item per payment in a call. Runs on any connection or transaction. */
export async function beginCharges(
  connection: pg.Pool | pg.PoolClient,
  items: readonly BeginChargeItem[],
): Promise<BeginChargeResult[]> {
  const { rows } = await connection.query<{ token: string; begun: boolean; now: Date }>({
    ...BEGIN,
    values: beginColumns(items),
  });
  const byToken = new Map(rows.map((row) => [row.token, row]));
  return items.map((item) => {
    const row = byToken.get(item.lease.token);
    if (!row) return { type: 'lease_lost' };
    return row.begun ? begunNow(item, row.now) : { type: 'exists' };
  });
}

/** What was just inserted, so that the way of a charge reads nothing back. */
export function begunNow(item: BeginChargeItem, now: Date): BeginChargeResult {
  return { type: 'begun', payment: newPayment(item, now), operation: newOperation(item, now) };
}

/** The parameters of BEGIN_ARRAYS. */
export function beginColumns(items: readonly BeginChargeItem[]): Buffer[] {
  const commands = items.map((item) => item.command);
  return [
    textArray(items.map((item) => item.lease.client_id)),
    textArray(items.map((item) => item.lease.key)),
    uuidArray(items.map((item) => item.lease.token)),
    uuidArray(items.map((item) => item.lease.payment_id)),
    uuidArray(items.map((item) => item.lease.operation_id)),
    textArray(commands.map((command) => command.provider)),
    textArray(commands.map((command) => command.external_payment_id)),
    byteaArray(commands.map((command) => command.hash)),
    int8Array(commands.map((command) => command.amount_minor)),
    textArray(commands.map((command) => command.currency)),
    textArray(commands.map((command) => command.customer_id)),
    textArray(commands.map((command) => command.payment_method)),
    textArray(commands.map((command) => command.capture)),
    textArray(commands.map((command) => command.order_id)),
    textArray(commands.map((command) => command.description)),
    textArray(commands.map((command) => (command.metadata === null ? null : JSON.stringify(command.metadata)))),
    textArray(commands.map((command) => command.return_url)),
    byteaArray(items.map((item) => item.key_hash)),
    textArray(items.map((item) => item.provider_key)),
    textArray(items.map((item) => item.origin.saga_id)),
    textArray(items.map((item) => item.origin.step_name)),
    textArray(items.map((item) => item.origin.traceparent)),
  ];
}

/** The row as it was just inserted, so that the way of a charge reads nothing back. */
function newPayment({ lease, command }: BeginChargeItem, now: Date): Payment {
  return {
    id: lease.payment_id,
    client_id: lease.client_id,
    provider: command.provider,
    external_payment_id: command.external_payment_id,
    command_hash: command.hash,
    version: 1,
    status: 'processing',
    amount_minor: command.amount_minor,
    currency: command.currency,
    amount_captured_minor: 0n,
    amount_refunded_minor: 0n,
    refund_reserved_minor: 0n,
    customer_id: command.customer_id,
    provider_payment_id: null,
    payment_method: command.payment_method,
    capture: command.capture,
    order_id: command.order_id,
    description: command.description,
    metadata: command.metadata,
    return_url: command.return_url,
    failure: null,
    next_action: null,
    created_at: now,
    updated_at: now,
  };
}

/** Written out, like `newPayment`: spreading `emptyOperation` cost nine microseconds a charge. */
function newOperation({ lease, command, origin, key_hash, provider_key }: BeginChargeItem, now: Date): Operation {
  return {
    id: lease.operation_id,
    payment_id: lease.payment_id,
    kind: 'charge',
    origin: 'client',
    try_number: 1,
    status: 'processing',
    amount_minor: command.amount_minor,
    idempotency_key: lease.key,
    key_hash,
    command_hash: command.hash,
    provider_key,
    payment_method: command.payment_method,
    reason: null,
    excess_operation_id: null,
    provider_payment_id: null,
    provider_refund_id: null,
    failure: null,
    attempts_started: 1,
    attempts_finished: 0,
    first_attempt_at: now,
    closed_at: null,
    checks: 0,
    needs_review_at: null,
    resolved_by: null,
    saga_id: origin.saga_id,
    step_name: origin.step_name,
    traceparent: origin.traceparent,
    created_at: now,
    updated_at: now,
  };
}

/** An operation that has just been begun: its first attempt is counted before it is sent. */
export function emptyOperation(
  now: Date,
): Omit<Operation, 'id' | 'payment_id' | 'kind' | 'amount_minor' | 'provider_key'> {
  return {
    origin: 'client',
    try_number: 1,
    status: 'processing',
    idempotency_key: null,
    key_hash: null,
    command_hash: null,
    payment_method: null,
    reason: null,
    excess_operation_id: null,
    provider_payment_id: null,
    provider_refund_id: null,
    failure: null,
    attempts_started: 1,
    attempts_finished: 0,
    first_attempt_at: now,
    closed_at: null,
    checks: 0,
    needs_review_at: null,
    resolved_by: null,
    saga_id: null,
    step_name: null,
    traceparent: null,
    created_at: now,
    updated_at: now,
  };
}
