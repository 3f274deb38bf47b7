import type pg from 'pg';
import { type Answer, locationOf, paymentBody, problemAnswer } from '../contract/answer.js';
import { inTransaction } from '../database/transaction.js';
import { Change } from '../domain/change.js';
import type { ChargeCommand } from '../domain/command.js';
import { chargeProviderKey, keyHash } from '../domain/command-hash.js';
import { OncepayError } from '../domain/errors.js';
import { judgeSecondCharge, type SecondGuardVerdict } from '../domain/second-guard.js';
import { type BeginChargeItem, emptyOperation, type Origin } from '../store/begin-charge.js';
import {
  type Dossier,
  findByExternalId,
  insertOperation,
  insertTimelineEntry,
  lockDossier,
} from '../store/payments.js';
import { holdsLease, leaveOpen, releaseKey, setRecordPayment, storeAnswer } from '../store/records.js';
import { findOperation, parkWaiter } from '../store/operations.js';
import { writeChange } from './change-payment.js';
import { clockFrom } from './clock.js';
import { answerOf, answerOfNewOwner, conclude, concludeStraight, type StraightCharge } from './conclude.js';
import type { PaymentsContext } from './context.js';
import { pursue } from './pursue.js';
import { type Held, providerDeadline, resume } from './run.js';

export const NO_ORIGIN: Origin = { saga_id: null, step_name: null, traceparent: null };

/** What beginning a charge led to, where its payment was there already. */
export type BegunOnExisting =
  /** The operation is durable: pursue it. `first`: its first attempt is counted and nothing was sent. */
  | { readonly type: 'pursue'; readonly payment_id: string; readonly operation_id: string; readonly first: boolean }
  | { readonly type: 'answer'; readonly answer: Answer }
  /** Refused for the moment; the key is free again. */
  | { readonly type: 'refused'; readonly error: OncepayError }
  | { readonly type: 'lease_lost' }
  /** What was in the way is gone: begin anew. */
  | { readonly type: 'vanished' };

const MAX_ROUNDS = 3;

/**
 * Runs a charge under a lease, or resumes it from what is recorded: begin, call, settle. The one use case behind
 * `POST /payments` and `ChargePayment.v1`.
 * @throws OncepayError `operation_in_progress`, `idempotency_key_in_progress`: refused for the moment, nothing stored
 */
export async function charge(
  ctx: PaymentsContext,
  held: Held,
  command: ChargeCommand,
  origin: Origin = NO_ORIGIN,
): Promise<Answer> {
  const item = beginItem(ctx, held, command, origin);
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const begun = await ctx.hot.begin.submit(item);
    if (begun.type === 'lease_lost') return answerOfNewOwner(ctx, held.lease, 'charge');
    if (begun.type === 'begun') {
      await ctx.atStep('begun', held.lease.operation_id);
      const clock = clockFrom(begun.payment.created_at);
      return runStraight(ctx, held, { lease: held.lease, clock, request_id: held.request_id, ...begun });
    }
    const existing = await inTransaction(ctx.pool, (tx) => beginOnExisting(ctx, tx, item, held.request_id));
    switch (existing.type) {
      case 'answer':
        return existing.answer;
      case 'refused':
        throw existing.error;
      case 'lease_lost':
        return answerOfNewOwner(ctx, held.lease, 'charge');
      case 'pursue':
        if (existing.first) await ctx.atStep('begun', held.lease.operation_id);
        return resume(ctx, held, 'charge', existing);
      case 'vanished':
        break;
    }
  }
  throw new Error('charge: what was in the way kept vanishing');
}

/** Everything that the begin statement writes; made once, so that running it again writes the same. */
export function beginItem(
  ctx: PaymentsContext,
  held: Pick<Held, 'lease'>,
  command: ChargeCommand,
  origin: Origin,
): BeginChargeItem {
  const { lease } = held;
  return {
    lease,
    command,
    origin,
    key_hash: keyHash(lease.client_id, lease.key),
    provider_key: providerKey(ctx, lease.client_id, command, 1),
  };
}

async function runStraight(ctx: PaymentsContext, held: Held, straight: StraightCharge): Promise<Answer> {
  const { payment, operation } = straight;
  const subject = { payment, operation, operations: [operation] };
  const pursuit = await pursue(ctx, subject, { first: true, deadline: providerDeadline(ctx, held), cause: 'request' });
  await ctx.atStep('answered', operation.id);
  const answer = await concludeStraight(ctx, straight, pursuit);
  if (answer) {
    await ctx.atStep('settled', operation.id);
    return answer;
  }
  const run = { lease: held.lease, payment_id: payment.id, operation_id: operation.id, cause: 'request' } as const;
  const conclusion = await conclude(ctx, run, pursuit);
  await ctx.atStep('settled', operation.id);
  return conclusion === 'lease_lost' ? answerOfNewOwner(ctx, held.lease, 'charge') : answerOf(conclusion);
}

/**
 * The second guard, in the caller's transaction: what a charge does where a payment of its name, or its own, is there
 * already. The record's lease is checked under the payment's lock; whatever is answered is stored with it.
 */
export async function beginOnExisting(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  item: BeginChargeItem,
  request_id: string,
): Promise<BegunOnExisting> {
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
): Promise<BegunOnExisting> {
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
): Promise<BegunOnExisting> {
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
    provider_key: providerKey(ctx, lease.client_id, command, try_number),
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

function providerKey(ctx: PaymentsContext, client_id: string, command: ChargeCommand, try_number: number): string {
  const { provider, external_payment_id } = command;
  return chargeProviderKey({
    installation_id: ctx.installation_id,
    client_id,
    provider,
    external_payment_id,
    try_number,
  });
}
