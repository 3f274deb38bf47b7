import type pg from 'pg';
import type { AnomalyKind } from '../domain/change.js';
import type { OperationKind, OperationStatus } from '../domain/payment.js';

/** An operation that an operator may have to look at, with the payment it is on. */
export interface ListedOperation {
  readonly id: string;
  readonly kind: OperationKind;
  readonly status: OperationStatus;
  readonly amount_minor: bigint;
  readonly currency: string;
  readonly payment_id: string;
  readonly client_id: string;
  readonly provider: string;
  readonly external_payment_id: string;
  readonly attempts_started: number;
  readonly attempts_finished: number;
  readonly checks: number;
  readonly check_at: Date | null;
  /** Since when it waits: for its outcome, or for an operator. */
  readonly since: Date;
}

export interface ListedAnomaly {
  readonly id: string;
  readonly kind: AnomalyKind;
  readonly payment_id: string | null;
  readonly operation_id: string | null;
  readonly detail: Readonly<Record<string, unknown>>;
  readonly created_at: Date;
}

export interface ListedEvent {
  readonly id: string;
  readonly provider: string;
  readonly event_id: string;
  readonly type: string;
  readonly failures: number;
  readonly last_error: string | null;
  readonly received_at: Date;
}

const LISTED = `o.id, o.kind, o.status, o.amount_minor, p.currency, o.payment_id, p.client_id, p.provider,
  p.external_payment_id, o.attempts_started, o.attempts_finished, o.checks, o.check_at`;

/** Operations that only an operator can go on with, longest waiting first. */
export async function listNeedsReview(pool: pg.Pool, limit: number): Promise<ListedOperation[]> {
  const { rows } = await pool.query<ListedOperation>(
    `select ${LISTED}, o.needs_review_at as since from operation o join payment p on p.id = o.payment_id
     where o.needs_review_at is not null order by o.needs_review_at, o.id limit $1`,
    [limit],
  );
  return rows;
}

/**
 * Operations whose outcome is not known for longer than `older_than_ms` and is still being asked for, oldest first. Each
 * branch walks a partial index that holds unfinished rows only: captures and the like in flight, what reconciliation
 * asks about, and what a request has on lease or a killed one left behind.
 */
export async function listUnknown(pool: pg.Pool, older_than_ms: number, limit: number): Promise<ListedOperation[]> {
  const { rows } = await pool.query<ListedOperation>(
    `with unfinished as (
       select id from operation where status = 'processing' and kind <> 'refund'
       union
       select id from operation where check_at is not null and status = 'processing'
       union
       select operation_id from idempotency_record where recover_at is not null
     )
     select ${LISTED}, o.created_at as since
     from unfinished u join operation o on o.id = u.id join payment p on p.id = o.payment_id
     where o.status = 'processing' and o.needs_review_at is null
       and o.created_at <= clock_timestamp() - $1::bigint * interval '1 millisecond'
     order by o.created_at, o.id limit $2`,
    [older_than_ms, limit],
  );
  return rows;
}

/** Anomalies that nobody has marked as resolved, oldest first. */
export async function listOpenAnomalies(pool: pg.Pool, limit: number): Promise<ListedAnomaly[]> {
  const { rows } = await pool.query<ListedAnomaly>(
    `select id, kind, payment_id, operation_id, detail, created_at from anomaly
     where resolved_at is null order by created_at, id limit $1`,
    [limit],
  );
  return rows;
}

/** Provider events that failed so often that they were set aside, oldest first. */
export async function listParkedEvents(pool: pg.Pool, limit: number): Promise<ListedEvent[]> {
  const { rows } = await pool.query<ListedEvent>(
    `select id, provider, event_id, type, failures, last_error, received_at from provider_event
     where outcome = 'parked' order by received_at, id limit $1`,
    [limit],
  );
  return rows;
}
