import type pg from 'pg';
import type { OperationKind, OperationStatus } from '../domain/payment.js';

type Connection = pg.Pool | pg.PoolClient;

/** What an id that an operator names stands for. */
export type Named =
  | { readonly type: 'operation'; readonly id: string; readonly payment_id: string }
  | { readonly type: 'payment'; readonly id: string; readonly payment_id: string }
  | { readonly type: 'anomaly'; readonly id: string; readonly payment_id: string | null }
  | { readonly type: 'event'; readonly id: string; readonly payment_id: string | null };

/** All our ids are UUIDs v7, made apart from each other: one is at most one thing. */
export async function findNamed(connection: Connection, id: string): Promise<Named | undefined> {
  const { rows } = await connection.query<Named>(
    `select 'operation' as type, id, payment_id from operation where id = $1
     union all select 'payment', id, id from payment where id = $1
     union all select 'anomaly', id, payment_id from anomaly where id = $1
     union all select 'event', id, payment_id from provider_event where id = $1`,
    [id],
  );
  return rows[0];
}

/** What decides whether an operator may end an operation without the provider's word. */
export interface LockedOperation {
  readonly kind: OperationKind;
  readonly status: OperationStatus;
  readonly attempts_started: number;
  readonly attempts_finished: number;
  readonly closed_at: Date | null;
  /** Since the first and the latest attempt was begun, by the database's clock; null: none ever was. */
  readonly first_attempt_age_ms: number | null;
  readonly last_attempt_age_ms: number | null;
  /** The provider told of another amount or currency than was asked for. */
  readonly is_mismatch: boolean;
}

/**
 * Locks an operation, under its payment's lock. A sending counts its attempt by a statement that waits here and then
 * finds what was decided: none begins after the look and before the decision.
 */
export async function lockOperation(tx: pg.PoolClient, operation_id: string): Promise<LockedOperation | undefined> {
  const locked = await tx.query('select 1 from operation where id = $1 for no key update', [operation_id]);
  if (locked.rowCount === 0) return undefined;
  const { rows } = await tx.query<LockedOperation>(
    `select o.kind, o.status, o.attempts_started, o.attempts_finished, o.closed_at,
       (extract(epoch from clock_timestamp() - o.first_attempt_at) * 1000)::float8 as first_attempt_age_ms,
       (extract(epoch from clock_timestamp() - coalesce(o.last_attempt_at, o.first_attempt_at)) * 1000)::float8 as last_attempt_age_ms,
       exists (select from anomaly a where a.operation_id = o.id and a.kind in ('amount_mismatch', 'currency_mismatch')) as is_mismatch
     from operation o where o.id = $1`,
    [operation_id],
  );
  return rows[0];
}

/** The refund that the provider calls by this name, of a payment. */
export async function findByProviderRefund(
  connection: Connection,
  payment_id: string,
  provider_refund_id: string,
): Promise<string | undefined> {
  const { rows } = await connection.query<{ id: string }>(
    'select id from operation where payment_id = $1 and provider_refund_id = $2',
    [payment_id, provider_refund_id],
  );
  return rows[0]?.id;
}

/** Reconciliation asks about it at once, from the beginning of its patience; it is off the operators' list. */
export async function askNow(tx: pg.PoolClient, operation_id: string): Promise<void> {
  await tx.query(
    `update operation set check_at = clock_timestamp(), checks = 0, needs_review_at = null where id = $1`,
    [operation_id],
  );
}

export interface AnomalyResolution {
  readonly by: string;
  readonly resolution: string;
}

/** @returns the anomaly's words, or undefined where it is resolved already */
export async function resolveAnomaly(
  tx: pg.PoolClient,
  anomaly_id: string,
  { by, resolution }: AnomalyResolution,
): Promise<{ readonly kind: string; readonly operation_id: string | null } | undefined> {
  const { rows } = await tx.query<{ kind: string; operation_id: string | null }>(
    `update anomaly set resolved_at = clock_timestamp(), resolved_by = $2, resolution = $3
     where id = $1 and resolved_at is null returning kind, operation_id`,
    [anomaly_id, by, resolution],
  );
  return rows[0];
}

/** Takes a parked event off the operators' list. Should the provider send it again, it is applied as ever. */
export async function setEventAside(tx: pg.PoolClient, event_id: string, note: string): Promise<boolean> {
  const { rowCount } = await tx.query(
    `update provider_event set outcome = 'ignored', last_error = concat_ws('; ', last_error, $2::text)
     where id = $1 and outcome = 'parked'`,
    [event_id, note],
  );
  return rowCount === 1;
}
