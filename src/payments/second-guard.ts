import type pg from 'pg';
import { type Answer, locationOf, paymentBody, problemAnswer } from '../contract/answer.js';
import { Change } from '../domain/change.js';
import { OncepayError } from '../domain/errors.js';
import { judgeSecondCharge, type SecondGuardVerdict } from '../domain/second-guard.js';
import { type BeginChargeItem, emptyOperation } from '../store/begin-charge.js';
import { findOperation, parkWaiter } from '../store/operations.js';
import {
  type Dossier,
  findByExternalId,
  insertOperation,
  insertTimelineEntry,
  lockDossier,
} from '../store/payments.js';
import { holdsLease, leaveOpen, releaseKey, setRecordPayment, storeAnswer } from '../store/records.js';
import { type Begun, chargeKey } from './begin.js';
import { writeChange } from './change-payment.js';
import type { PaymentsContext } from './context.js';

/**
 * The second guard, in the caller's transaction: what a charge does where a payment of its name, or its own, is there
 * already. The record's lease is checked under the payment's lock; whatever is answered is stored with it.
 */
export async function beginOnExisting(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  item: BeginChargeItem,
  request_id: string,
): Promise<Begun> {
  const { lease, command, key_hash } = item;
  const own = await findOperation(tx, lease.operation_id);
  if (own) return { type: 'pursue', payment_id: own.payment_id, operation_id: own.id, first: false };
  const payment_id = await findByExternalId(tx, { client_id: lease.client_id, ...command });
  const dossier = payment_id && (await lockDossier(tx, payment_id, { key_hash }));
  if (!dossier) return { type: 'vanished' };
  if (!(await holdsLease(tx, lease))) return { type: 'lease_lost' };
  const verdict = judgeSecondCharge(dossier.payment, dossier.operations, {
    client_id: lease.client_id,
    key_hash,
    command,
  });
  return carryOut(ctx, tx, item, dossier, verdict, request_id);
}

async function carryOut(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  item: BeginChargeItem,
  dossier: Dossier,
  verdict: SecondGuardVerdict,
  request_id: string,
): Promise<Begun> {
  switch (verdict.type) {
    case 'pay_again':
      return payAgain(ctx, tx, item, dossier, verdict.try_number);
    case 'wait':
      return { type: 'answer', answer: await waitFor(ctx, tx, item, dossier, verdict.operation_id) };
    case 'exists':
      return { type: 'answer', answer: await showExisting(ctx, tx, item, dossier) };
    case 'busy': {
      await releaseKey(tx, item.lease);
      const detail = 'This payment is being paid again by another request. Look at it before you try once more.';
      return {
        type: 'refused',
        error: new OncepayError('operation_in_progress', detail, { members: { payment_id: dossier.payment.id } }),
      };
    }
    case 'taken_by_another_client':
    case 'taken':
    case 'key_reused':
      return {
        type: 'answer',
        answer: await refuse(ctx, tx, item, dossier, refusal(verdict.type, dossier.payment.id), request_id),
      };
  }
}

function refusal(verdict: 'taken_by_another_client' | 'taken' | 'key_reused', payment_id: string): OncepayError {
  if (verdict === 'key_reused') {
    return new OncepayError(
      'idempotency_key_reused',
      'This key once made an operation of this payment, for another command.',
    );
  }
  const detail = 'A payment of this external_payment_id exists already, for another command.';
  return new OncepayError('external_payment_id_taken', detail, verdict === 'taken' ? { members: { payment_id } } : {});
}

/** A new try of a payment that was declined: the same payment, another operation, another provider key. */
async function payAgain(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  item: BeginChargeItem,
  dossier: Dossier,
  try_number: number,
): Promise<Begun> {
  const { lease, command } = item;
  const operation = {
    ...emptyOperation(dossier.now),
    ...item.origin,
    id: lease.operation_id,
    payment_id: dossier.payment.id,
    kind: 'charge' as const,
    try_number,
    amount_minor: command.amount_minor,
    idempotency_key: lease.key,
    key_hash: item.key_hash,
    command_hash: command.hash,
    provider_key: chargeKey(ctx, lease.client_id, command, try_number),
    payment_method: command.payment_method,
  };
  await insertOperation(tx, operation, null);
  await setRecordPayment(tx, lease, dossier.payment.id);
  const change = new Change(
    dossier.payment,
    [...dossier.operations, operation],
    dossier.now,
    'request',
    dossier.known_anomalies,
  );
  change.movePayment('processing', operation.id, {
    payment_method: command.payment_method,
    provider_payment_id: null,
    failure: null,
    next_action: null,
  });
  await writeChange(ctx, tx, change);
  return { type: 'pursue', payment_id: dossier.payment.id, operation_id: operation.id, first: true };
}

async function waitFor(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  item: BeginChargeItem,
  dossier: Dossier,
  operation_id: string,
): Promise<Answer> {
  const { payment } = dossier;
  // A new version: a settle that has read its waiting records already must miss this one and look again.
  await parkWaiter(tx, payment.id);
  await leaveOpen(tx, item.lease, { payment_id: payment.id, operation_id, success_status: 200 });
  await noteRequest(tx, item, dossier, operation_id);
  const location = locationOf('charge', 202, payment.id, operation_id);
  return { status: 202, body: paymentBody(payment), location, expires_at: expiry(ctx, dossier), replayed: false };
}

async function showExisting(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  item: BeginChargeItem,
  dossier: Dossier,
): Promise<Answer> {
  const { payment } = dossier;
  const body = paymentBody(payment);
  const expires_at = expiry(ctx, dossier);
  await storeAnswer(tx, item.lease, { http_status: 200, body, expires_at, payment_id: payment.id, operation_id: null });
  await noteRequest(tx, item, dossier, null);
  return {
    status: 200,
    body,
    location: locationOf('charge', 200, payment.id, item.lease.operation_id),
    expires_at,
    replayed: false,
  };
}

async function refuse(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  item: BeginChargeItem,
  dossier: Dossier,
  error: OncepayError,
  request_id: string,
): Promise<Answer> {
  const { body, http_status } = problemAnswer(error, request_id);
  const expires_at = expiry(ctx, dossier);
  const isOwn = dossier.payment.client_id === item.lease.client_id;
  const payment_id = isOwn ? dossier.payment.id : null;
  await storeAnswer(tx, item.lease, { http_status, body, expires_at, payment_id, operation_id: null });
  return { status: http_status, body, location: null, expires_at, replayed: false };
}

/** A key that made no operation leaves no other trace on the payment. */
async function noteRequest(
  tx: pg.PoolClient,
  item: BeginChargeItem,
  dossier: Dossier,
  operation_id: string | null,
): Promise<void> {
  const detail = { idempotency_key: item.lease.key, kind: 'charge', found: dossier.payment.status };
  await insertTimelineEntry(tx, { payment_id: dossier.payment.id, operation_id, type: 'request', detail });
}

function expiry(ctx: PaymentsContext, dossier: Dossier): Date {
  return new Date(dossier.now.getTime() + ctx.retention_ms);
}
