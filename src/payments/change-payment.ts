import type pg from 'pg';
import { newId } from '../domain/id.js';
import { finalAnswer } from '../contract/answer.js';
import { inTransaction } from '../database/transaction.js';
import { applyFact } from '../domain/apply-outcome.js';
import { addRefund } from '../domain/apply-refund-fact.js';
import { type Cause, Change } from '../domain/change.js';
import { operationProviderKey } from '../domain/command-hash.js';
import type { Fact } from '../domain/fact.js';
import type { Operation } from '../domain/payment.js';
import { nextCheck } from '../domain/schedule.js';
import { emptyOperation } from '../store/begin-charge.js';
import {
  insertAnomalies,
  insertEvents,
  insertOperation,
  lockDossier,
  type RefundSelection,
  updateOperation,
  updatePayment,
} from '../store/payments.js';
import { answerWaiting } from '../store/records.js';
import type { PaymentsContext } from './context.js';
import { outboxRows } from './outbox-rows.js';

export interface FactToApply {
  readonly payment_id: string;
  readonly cause: Cause;
  readonly fact: { readonly operation_id: string; readonly fact: Fact };
}

/** Applies a fact in a transaction of its own: payment locked, every waiting answer written, events beside it. */
export async function changePayment(ctx: PaymentsContext, { payment_id, cause, fact }: FactToApply): Promise<void> {
  await inTransaction(ctx.pool, async (tx) => {
    const change = await lockForChange(tx, payment_id, { operation_id: fact.operation_id }, cause);
    if (!change) throw new Error(`payment ${payment_id} is gone`);
    applyFact(change, fact.operation_id, fact.fact);
    await writeChange(ctx, tx, change);
  });
}

/** Locks a payment with its operations (of its refunds those asked for), ready to be changed. Undefined: there is no such payment. */
export async function lockForChange(
  tx: pg.PoolClient,
  payment_id: string,
  refunds: RefundSelection,
  cause: Cause,
): Promise<Change | undefined> {
  const dossier = await lockDossier(tx, payment_id, refunds);
  return dossier && new Change(dossier.payment, dossier.operations, dossier.now, cause, dossier.known_anomalies);
}

/** The final answers that were stored, by the operation that ended: whoever asked is sent the same text. */
export type WrittenAnswers = Map<
  string,
  { readonly body: string; readonly http_status: number | null; readonly expires_at: Date }
>;

/**
 * Writes a change under its payment's lock, all or nothing: payment, operations, every answer that waits for an operation
 * that ended here, events, anomalies.
 */
export async function writeChange(ctx: PaymentsContext, tx: pg.PoolClient, change: Change): Promise<WrittenAnswers> {
  const answers: WrittenAnswers = new Map();
  if (change.isEmpty) return answers;
  if (ctx.auto_refund_anomalies) refundExcess(ctx, change);
  if (change.payment.version !== change.before.version) await updatePayment(tx, change.payment, change.history);
  const pace = { first_ms: ctx.timing.reconcile_interval_ms };
  for (const operation of change.addedOperations)
    await insertOperation(tx, operation, nextCheck(operation, 0, change.now, pace));
  for (const operation of change.changedOperations) {
    await updateOperation(tx, operation, nextCheck(operation, 0, change.now, pace));
  }
  for (const operation of change.decidedOperations) {
    const answer = finalAnswer(change.payment, operation, newId());
    const expires_at = new Date(change.now.getTime() + ctx.retention_ms);
    await answerWaiting(tx, operation.id, { ...answer, answered_at: change.now, expires_at });
    answers.set(operation.id, { ...answer, expires_at });
  }
  await insertEvents(tx, outboxRows(change));
  await insertAnomalies(tx, change.payment.id, change.anomalies);
  for (const anomaly of change.anomalies) {
    ctx.metrics.countAnomaly(anomaly.kind);
    ctx.logger.warn(
      { payment_id: change.payment.id, operation_id: anomaly.operation_id, anomaly: anomaly.kind, ...anomaly.detail },
      'anomaly',
    );
  }
  return answers;
}

/**
 * Money taken twice or after a cancel is given back, once per excess operation (unique); reconciliation sends it. What was
 * taken after a cancel is the payment's own money: its refund counts there. What was taken twice is beside it.
 */
function refundExcess(ctx: PaymentsContext, change: Change): void {
  for (const { kind, operation_id, detail } of change.anomalies) {
    if ((kind !== 'paid_twice' && kind !== 'paid_after_cancel') || operation_id === null) continue;
    const excess = change.operation(operation_id);
    // Held is not taken; and of two taken under one reference it is for people to see which to give back.
    if (excess.status !== 'succeeded' || 'other_provider_payment_id' in detail) continue;
    const amount_minor = kind === 'paid_twice' ? excess.amount_minor : change.payment.amount_captured_minor;
    addRefund(change, excessRefund(ctx, change, excess, amount_minor));
  }
}

function excessRefund(ctx: PaymentsContext, change: Change, excess: Operation, amount_minor: bigint): Operation {
  const { client_id, provider, external_payment_id, id } = change.payment;
  const name = `auto-refund of ${excess.provider_key}`;
  return {
    ...emptyOperation(change.now),
    id: newId(),
    payment_id: id,
    kind: 'refund',
    origin: 'auto_refund',
    amount_minor,
    provider_key: operationProviderKey({
      installation_id: ctx.installation_id,
      client_id,
      provider,
      external_payment_id,
      kind: 'refund',
      idempotency_key: name,
    }),
    excess_operation_id: excess.id,
    attempts_started: 0,
    first_attempt_at: null,
    reason: 'taken in excess',
  };
}
