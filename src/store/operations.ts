import type pg from 'pg';
import type { OperationKind } from '../domain/payment.js';
import type { Lease } from './reserve.js';
import type { AttemptRecord } from './settle.js';

type Connection = pg.Pool | pg.PoolClient;

/** Counts an attempt before it is sent, so that what it kills can be seen. Undefined: the operation has ended meanwhile. */
export async function startAttempt(
  connection: Connection,
  operation_id: string,
): Promise<{ readonly attempts_started: number; readonly first_attempt_at: Date; readonly now: Date } | undefined> {
  const { rows } = await connection.query<{ attempts_started: number; first_attempt_at: Date; now: Date }>({
    name: 'attempt_start',
    text: `update operation
           set attempts_started = attempts_started + 1, first_attempt_at = coalesce(first_attempt_at, clock_timestamp()),
               last_attempt_at = clock_timestamp()
           where id = $1 and status = 'processing'
           returning attempts_started, first_attempt_at, clock_timestamp() as now`,
    values: [operation_id],
  });
  return rows[0];
}

/** How many attempts were ever started, with the row locked: no further one begins until the transaction ends. */
export async function lockAttempts(tx: pg.PoolClient, operation_id: string): Promise<number> {
  const { rows } = await tx.query<{ attempts_started: number }>({
    name: 'attempts_lock',
    text: `select attempts_started from operation where id = $1 for no key update`,
    values: [operation_id],
  });
  if (!rows[0]) throw new Error(`operation ${operation_id} is gone`);
  return rows[0].attempts_started;
}

/** Keeps finished attempts, and when to ask next where nothing else was learned. */
export async function recordAttempts(
  connection: Connection,
  operation_id: string,
  record: { readonly attempts: readonly AttemptRecord[]; readonly sent: number },
): Promise<void> {
  if (record.attempts.length === 0) return;
  await connection.query({
    name: 'attempt_finish',
    // Not twice: a settle whose acknowledgement was lost has written them already.
    text: `update operation set attempts = attempts || $2::jsonb, attempts_finished = attempts_finished + $3
           where id = $1 and not attempts @> $2::jsonb`,
    values: [operation_id, JSON.stringify(record.attempts), record.sent],
  });
}

/** Whose payment an operation is on; undefined: it was never begun. */
export async function findOperation(
  connection: Connection,
  operation_id: string,
): Promise<{ readonly id: string; readonly payment_id: string } | undefined> {
  const { rows } = await connection.query<{ id: string; payment_id: string }>({
    name: 'operation_find',
    text: `select id, payment_id from operation where id = $1`,
    values: [operation_id],
  });
  return rows[0];
}

/** A new version of a payment for a key that begins to wait for it, under the payment's lock. */
export async function parkWaiter(tx: pg.PoolClient, payment_id: string): Promise<void> {
  await tx.query({
    name: 'payment_park',
    text: `update payment set version = version + 1 where id = $1`,
    values: [payment_id],
  });
}

/** When reconciliation asks next; `needs_review_at` takes it off its list and puts it on the operators'. */
export async function scheduleCheck(
  connection: Connection,
  operation_id: string,
  check_at: Date | null,
  needs_review_at: Date | null,
): Promise<void> {
  await connection.query({
    name: 'operation_schedule',
    text: `update operation set check_at = $2, needs_review_at = $3 where id = $1`,
    values: [operation_id, check_at, needs_review_at],
  });
}

export interface DueOperation {
  readonly id: string;
  readonly payment_id: string;
  readonly kind: OperationKind;
  readonly checks: number;
}

/**
 * Claims operations that are due and that no request has on lease, by moving their next check into the future: several instances share the work, and
 * what a process dies with comes up again.
 */
export async function claimDue(connection: Connection, limit: number, claim_ms: number): Promise<DueOperation[]> {
  const { rows } = await connection.query<DueOperation>({
    name: 'operation_claim_due',
    text: `with due as (
             select id from operation o
             where check_at <= (select clock_timestamp())
               and (select count(*) from idempotency_record r where r.operation_id = o.id and r.state = 'in_progress') = 0
             order by check_at limit $1 for no key update skip locked
           )
           update operation o set check_at = clock_timestamp() + $2::int * interval '1 millisecond', checks = o.checks + 1
           from due where o.id = due.id
           returning o.id, o.payment_id, o.kind, o.checks`,
    values: [limit, claim_ms],
  });
  return rows;
}

// In the next two: the time as a subselect is read once and bounds the index scan; called in the condition itself it would
// be a filter over all of it. The record is looked up by a subselect that can't become a join: planned as one, with
// millions of records, it began from those and read them all, since nothing tells the planner how few are in progress.

/**
 * Takes over leases that are over: those that recover_at watches, and those of charges, which their operation's check_at
 * does (see the migration `hot_updates`). What is locked right now is somebody else's work already.
 */
export async function takeOverExpired(
  connection: Connection,
  limit: number,
  lease_ms: number,
): Promise<(Lease & { kind: OperationKind })[]> {
  const { rows } = await connection.query<Lease & { kind: OperationKind }>({
    name: 'record_take_over_expired',
    text: `with watched as (
             select client_id, key from idempotency_record
             where recover_at <= (select clock_timestamp()) and state = 'in_progress' and lease_until <= clock_timestamp()
             order by recover_at limit $1 for no key update skip locked
           ), begun as (
             select r.client_id, r.key from operation o cross join lateral (
               select client_id, key from idempotency_record
               where operation_id = o.id and state = 'in_progress' and lease_until <= clock_timestamp()
               for no key update skip locked
             ) r
             where o.check_at <= (select clock_timestamp())
             order by o.check_at limit $1
           ), over as (
             select client_id, key from watched union select client_id, key from begun limit $1
           ), lease as materialized (
             select clock_timestamp() + $2::int * interval '1 millisecond' as until
           )
           update idempotency_record r
           set lease_token = gen_random_uuid(), lease_until = lease.until, recover_at = lease.until,
               attempts_started = r.attempts_started + 1
           from lease, over where r.client_id = over.client_id and r.key = over.key
           returning r.client_id, r.key, r.command_hash, r.lease_token as token, r.payment_id, r.operation_id, r.kind`,
    values: [limit, lease_ms],
  });
  return rows;
}
