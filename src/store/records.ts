import type pg from 'pg';
import type { Lease, StoredAnswer } from './reserve.js';

type Connection = pg.Pool | pg.PoolClient;

/**
 * Locks the record of a lease and tells whether it is still held. Under the payment's lock, where there is a payment:
 * the order payment, operation, record holds everywhere.
 */
export async function holdsLease(tx: pg.PoolClient, lease: Lease): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'record_hold',
    text: `select 1 from idempotency_record where client_id = $1 and key = $2 and lease_token = $3 for no key update`,
    values: [lease.client_id, lease.key, lease.token],
  });
  return rowCount === 1;
}

/** Gives every answer that waits for an operation, whoever asked. `http_status` null: what success is called there. */
export async function answerWaiting(
  tx: pg.PoolClient,
  operation_id: string,
  answer: {
    readonly body: string;
    readonly http_status: number | null;
    readonly expires_at: Date;
    readonly answered_at: Date;
  },
): Promise<void> {
  await tx.query({
    name: 'record_answer_waiting',
    text: `with l as (
             select client_id, key from idempotency_record where operation_id = $1 and state <> 'done'
             order by client_id, key for no key update
           )
           update idempotency_record r
           set state = 'done', http_status = coalesce($2::smallint, r.success_status), body = $3, answered_at = $4, expires_at = $5,
               lease_token = null, lease_until = null, recover_at = null, attempts_finished = r.attempts_finished + 1
           from l where r.client_id = l.client_id and r.key = l.key`,
    values: [operation_id, answer.http_status, answer.body, answer.answered_at, answer.expires_at],
  });
}

/** Stores a final answer that rests on no operation of this key. False: the lease was lost, nothing was written. */
export async function storeAnswer(
  connection: Connection,
  lease: Lease,
  answer: StoredAnswer & { readonly payment_id: string | null; readonly operation_id: string | null },
): Promise<boolean> {
  const { rowCount } = await connection.query({
    name: 'record_store_answer',
    text: `update idempotency_record
           set state = 'done', http_status = $4, body = $5, answered_at = clock_timestamp(), expires_at = $6, lease_token = null,
               lease_until = null, recover_at = null, attempts_finished = attempts_finished + 1,
               payment_id = coalesce($7, payment_id), operation_id = coalesce($8, operation_id)
           where client_id = $1 and key = $2 and lease_token = $3`,
    values: [
      lease.client_id,
      lease.key,
      lease.token,
      answer.http_status,
      answer.body,
      answer.expires_at,
      answer.payment_id,
      answer.operation_id,
    ],
  });
  return rowCount === 1;
}

/** Leaves a key waiting for an operation's outcome: answered 202, no lease. False: the lease was lost. */
export async function leaveOpen(
  connection: Connection,
  lease: Lease,
  waits_for: { readonly payment_id: string; readonly operation_id: string; readonly success_status: number | null },
): Promise<boolean> {
  const { rowCount } = await connection.query({
    name: 'record_leave_open',
    text: `update idempotency_record
           set state = 'open', lease_token = null, lease_until = null, recover_at = null, attempts_finished = attempts_finished + 1,
               payment_id = $4, operation_id = $5, success_status = coalesce($6::smallint, success_status)
           where client_id = $1 and key = $2 and lease_token = $3`,
    values: [
      lease.client_id,
      lease.key,
      lease.token,
      waits_for.payment_id,
      waits_for.operation_id,
      waits_for.success_status,
    ],
  });
  return rowCount === 1;
}

/** Frees a key whose command was refused for the moment, or never begun: the next request starts anew. */
export async function releaseKey(connection: Connection, lease: Lease): Promise<boolean> {
  const { rowCount } = await connection.query({
    name: 'record_release',
    text: `delete from idempotency_record where client_id = $1 and key = $2 and lease_token = $3`,
    values: [lease.client_id, lease.key, lease.token],
  });
  return rowCount === 1;
}

/** After an unexpected error: the lease is over at once, so that a retry resumes without waiting for it. */
export async function endLease(connection: Connection, lease: Lease): Promise<void> {
  await connection.query({
    name: 'record_end_lease',
    text: `update idempotency_record set lease_until = clock_timestamp(), recover_at = clock_timestamp() where client_id = $1 and key = $2 and lease_token = $3`,
    values: [lease.client_id, lease.key, lease.token],
  });
}

/** A final answer with what it is about. */
export interface KeptAnswer extends StoredAnswer {
  readonly command_hash: Buffer;
  readonly payment_id: string;
  readonly operation_id: string;
}

/** The stored answer of a key, where there is one. */
export async function readAnswer(
  connection: Connection,
  client_id: string,
  key: string,
): Promise<KeptAnswer | undefined> {
  const { rows } = await connection.query<KeptAnswer>({
    name: 'record_read_answer',
    text: `select http_status, body, expires_at, command_hash, payment_id, operation_id from idempotency_record where client_id = $1 and key = $2 and state = 'done'`,
    values: [client_id, key],
  });
  return rows[0];
}

/** Whose payment a key is about: the id that was made with the reservation named a payment that never came to be. */
export async function setRecordPayment(connection: Connection, lease: Lease, payment_id: string): Promise<void> {
  await connection.query({
    name: 'record_payment',
    text: `update idempotency_record set payment_id = $4 where client_id = $1 and key = $2 and lease_token = $3`,
    values: [lease.client_id, lease.key, lease.token, payment_id],
  });
}
