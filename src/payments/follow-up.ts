import type pg from 'pg';
import { type Answer, locationOf, problemAnswer, resourceBody } from '../contract/answer.js';
import { inTransaction } from '../database/transaction.js';
import { admit } from '../domain/admission.js';
import { Change } from '../domain/change.js';
import type { CancelCommand, CaptureCommand, RefundCommand } from '../domain/command.js';
import { keyHash, operationProviderKey } from '../domain/command-hash.js';
import { OncepayError } from '../domain/errors.js';
import { isDecided } from '../domain/moves.js';
import type { Operation } from '../domain/payment.js';
import { emptyOperation, type Origin } from '../store/begin-charge.js';
import { findOperation, parkWaiter } from '../store/operations.js';
import { type Dossier, insertOperation, insertTimelineEntry, lockDossier } from '../store/payments.js';
import { holdsLease, leaveOpen, releaseKey, storeAnswer } from '../store/records.js';
import { writeChange } from './change-payment.js';
import { type Begun, NO_ORIGIN } from './begin.js';
import { answerOfNewOwner } from './conclude.js';
import type { PaymentsContext } from './context.js';
import { type Held, resume } from './run.js';

export type FollowUpCommand = CaptureCommand | CancelCommand | RefundCommand;

/**
 * Runs a capture, cancel or refund under a lease, or resumes it from what is recorded: begin under the payment's lock,
 * call, settle.
 * @throws OncepayError `operation_in_progress` and the like: refused for the moment, the key is free again
 */
export async function followUp(
  ctx: PaymentsContext,
  held: Held,
  command: FollowUpCommand,
  origin: Origin = NO_ORIGIN,
): Promise<Answer> {
  const begun = await inTransaction(ctx.pool, (tx) => beginFollowUp(ctx, tx, held, command, origin));
  switch (begun.type) {
    case 'answer':
      return begun.answer;
    case 'refused':
      throw begun.error;
    case 'lease_lost':
      return answerOfNewOwner(ctx, held.lease, command.kind);
    case 'pursue':
      if (begun.first) await ctx.atStep('begun', begun.operation_id);
      return resume(ctx, held, command.kind, begun);
    case 'vanished':
      throw new OncepayError('not_found', 'There is no payment of this id.');
  }
}

/** Makes the operation durable, in the caller's transaction, or answers why it does not begin. */
export async function beginFollowUp(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  held: Pick<Held, 'lease' | 'request_id'>,
  command: FollowUpCommand,
  origin: Origin,
): Promise<Begun> {
  const { lease } = held;
  const key_hash = keyHash(lease.client_id, lease.key);
  const dossier = await lockDossier(tx, command.payment_id, { operation_id: lease.operation_id, key_hash });
  if (!dossier) return { type: 'vanished' };
  if (!(await holdsLease(tx, lease))) return { type: 'lease_lost' };
  const own = await findOperation(tx, lease.operation_id);
  if (own) return { type: 'pursue', payment_id: own.payment_id, operation_id: own.id, first: false };
  const earlier = dossier.operations.find((operation) => operation.key_hash?.equals(key_hash));
  if (earlier) return { type: 'answer', answer: await answerEarlier(ctx, tx, held, command, dossier, earlier) };

  const admission = admit(dossier.payment, dossier.operations, command);
  if (admission.type === 'refused') {
    if (admission.for_now) {
      await releaseKey(tx, lease);
      return { type: 'refused', error: admission.error };
    }
    return { type: 'answer', answer: await storeRefusal(ctx, tx, held, dossier, admission.error) };
  }
  await insertFollowUp(ctx, tx, dossier, { lease, command, origin, key_hash, amount_minor: admission.amount_minor });
  return { type: 'pursue', payment_id: dossier.payment.id, operation_id: lease.operation_id, first: true };
}

async function insertFollowUp(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  dossier: Dossier,
  begun: { lease: Held['lease']; command: FollowUpCommand; origin: Origin; key_hash: Buffer; amount_minor: bigint },
): Promise<void> {
  const { lease, command, amount_minor } = begun;
  const { client_id, provider, external_payment_id, id } = dossier.payment;
  await insertOperation(
    tx,
    {
      ...emptyOperation(dossier.now),
      ...begun.origin,
      id: lease.operation_id,
      payment_id: id,
      kind: command.kind,
      amount_minor,
      idempotency_key: lease.key,
      key_hash: begun.key_hash,
      command_hash: command.hash,
      provider_key: operationProviderKey({
        installation_id: ctx.installation_id,
        client_id,
        provider,
        external_payment_id,
        kind: command.kind,
        idempotency_key: lease.key,
      }),
      reason: command.kind === 'refund' ? command.reason : null,
    },
    null,
  );
  const change = new Change(dossier.payment, dossier.operations, dossier.now, 'request', dossier.known_anomalies);
  // The counter is what the next admission looks at; a capture or cancel is held by its unique index, and makes a new
  // version so that whoever decided on the payment without it decides again.
  if (command.kind === 'refund')
    change.updatePayment({ refund_reserved_minor: dossier.payment.refund_reserved_minor + amount_minor });
  else change.touch();
  await writeChange(ctx, tx, change);
}

/** The key comes back past its retention: the operation that it once made still stands. */
async function answerEarlier(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  held: Pick<Held, 'lease' | 'request_id'>,
  command: FollowUpCommand,
  dossier: Dossier,
  earlier: Operation,
): Promise<Answer> {
  const { payment, now } = dossier;
  if (earlier.kind !== command.kind || !earlier.command_hash?.equals(command.hash)) {
    return storeRefusal(
      ctx,
      tx,
      held,
      dossier,
      new OncepayError('idempotency_key_reused', 'This key once made an operation for another command.'),
    );
  }
  const expires_at = new Date(now.getTime() + ctx.retention_ms);
  const body = resourceBody(payment, earlier);
  const target = { payment_id: payment.id, operation_id: earlier.id };
  await insertTimelineEntry(tx, {
    ...target,
    type: 'request',
    detail: { idempotency_key: held.lease.key, kind: command.kind, found: earlier.status },
  });
  const status = isDecided(earlier.status) ? 200 : 202;
  if (status === 200) await storeAnswer(tx, held.lease, { http_status: 200, body, expires_at, ...target });
  else {
    await parkWaiter(tx, payment.id);
    await leaveOpen(tx, held.lease, { ...target, success_status: 200 });
  }
  return {
    status,
    body,
    location: locationOf(command.kind, status, payment.id, earlier.id),
    expires_at,
    replayed: false,
  };
}

async function storeRefusal(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  held: Pick<Held, 'lease' | 'request_id'>,
  dossier: Dossier,
  error: OncepayError,
): Promise<Answer> {
  const { body, http_status } = problemAnswer(error, held.request_id);
  const expires_at = new Date(dossier.now.getTime() + ctx.retention_ms);
  await storeAnswer(tx, held.lease, {
    http_status,
    body,
    expires_at,
    payment_id: dossier.payment.id,
    operation_id: null,
  });
  return { status: http_status, body, location: null, expires_at, replayed: false };
}
