import type pg from 'pg';
import { inTransaction } from '../database/transaction.js';
import { endCharge } from '../domain/apply-charge-fact.js';
import { applyFact, applyOutcome } from '../domain/apply-outcome.js';
import type { Change } from '../domain/change.js';
import type { ChargeFact, Fact } from '../domain/fact.js';
import type { Failure, Operation, OperationStatus, PaymentStatus } from '../domain/payment.js';
import { findOperation } from '../store/operations.js';
import { askNow, lockOperation, type LockedOperation, resolveAnomaly, setEventAside } from '../store/operator.js';
import { insertTimelineEntry } from '../store/payments.js';
import { lockForChange, writeChange } from './change-payment.js';
import type { PaymentsContext } from './context.js';
import { OperatorRefusal, refuseTooEarly, refuseUnfit } from './operator-checks.js';
import { chargeOf } from './provider-calls.js';

/** Who does it, and why: kept with what was done. */
export interface OperatorWord {
  readonly by: string;
  readonly reason: string | null;
}

export interface Resolution extends OperatorWord {
  readonly operation_id: string;
  readonly outcome: 'succeeded' | 'failed';
  /** What the provider shows. Of a charge or refund that succeeded: the provider's id of it. */
  readonly evidence: string;
}

export interface Settled {
  readonly operation_status: OperationStatus;
  readonly payment_id: string;
  readonly payment_status: PaymentStatus;
  /** Anomalies that this settling raised. */
  readonly anomalies: readonly string[];
}

const GIVEN_UP: Failure = {
  code: 'processing_error',
  message: 'It did not happen at the provider; an operator has settled it.',
};

/**
 * Has reconciliation ask about an operation at once, and send it again where that is safe, from the beginning of its
 * patience.
 * @throws OperatorRefusal where it has ended for good
 */
export async function retryOperation(
  { pool }: Pick<PaymentsContext, 'pool'>,
  operation_id: string,
  { by, reason }: OperatorWord,
): Promise<void> {
  await inTransaction(pool, async (tx) => {
    const { change, operation } = await lockNamed(tx, operation_id);
    const mayChange = operation.status === 'processing' || (operation.kind === 'charge' && !isFinal(operation));
    if (!mayChange) {
      throw new OperatorRefusal(`The ${operation.kind} is ${operation.status}: there is nothing to ask the provider.`);
    }
    await askNow(tx, operation_id);
    await insertTimelineEntry(tx, {
      payment_id: change.payment.id,
      operation_id,
      type: 'operator',
      detail: { action: 'retry', by, reason },
    });
  });
}

/**
 * Ends an operation by what an operator has seen at the provider, on the ordinary path: every waiting answer is written,
 * events go out. `failed` is taken only where no request can be under way any more: past the provider's memory of keys,
 * with no attempt open. Should it turn out to have succeeded after all, that is the anomaly `late_success`.
 * @throws OperatorRefusal
 */
export async function resolveOperation(ctx: PaymentsContext, asked: Resolution): Promise<Settled> {
  return inTransaction(ctx.pool, async (tx) => {
    const { operation_id, outcome, evidence, reason, by } = asked;
    const { change, operation, locked } = await lockNamed(tx, operation_id);
    if (operation.status !== 'processing' && operation.needs_review_at === null) {
      throw new OperatorRefusal(`The ${operation.kind} is ${operation.status} already: there is nothing to resolve.`);
    }
    if (outcome === 'failed') refuseTooEarly(ctx, change, locked);
    else await refuseUnfit(tx, change, operation, locked, evidence);

    change.updateOperation(operation_id, { resolved_by: by, needs_review_at: null });
    if (outcome === 'succeeded') applyFact(change, operation_id, factOf(change, operation, evidence));
    else if (operation.kind === 'charge') endCharge(change, change.operation(operation_id), GIVEN_UP, true);
    else applyOutcome(change, operation_id, { type: 'never_happened', failure: GIVEN_UP });

    const { status } = change.operation(operation_id);
    const isAsAsked = outcome === 'failed' ? status === 'failed' : status === 'succeeded' || status === 'authorized';
    if (!isAsAsked) throw new OperatorRefusal(`A ${operation.kind} that is ${operation.status} can't be ${outcome}.`);
    await writeChange(ctx, tx, change);
    await insertTimelineEntry(tx, {
      payment_id: change.payment.id,
      operation_id,
      type: 'operator',
      detail: { action: 'resolve', outcome, evidence, reason, by },
    });
    return {
      operation_status: status,
      payment_id: change.payment.id,
      payment_status: change.payment.status,
      anomalies: change.anomalies.map(({ kind }) => kind),
    };
  });
}

/**
 * Marks an anomaly as dealt with. It moves no money.
 * @throws OperatorRefusal where it is resolved already
 */
export async function resolveNamedAnomaly(
  { pool }: Pick<PaymentsContext, 'pool'>,
  anomaly: { readonly id: string; readonly payment_id: string | null },
  word: { readonly by: string; readonly reason: string; readonly evidence: string | null },
): Promise<void> {
  const { by, reason, evidence } = word;
  await inTransaction(pool, async (tx) => {
    const resolution = evidence === null ? reason : `${reason} (${evidence})`;
    const resolved = await resolveAnomaly(tx, anomaly.id, { by, resolution });
    if (!resolved) throw new OperatorRefusal('The anomaly is resolved already.');
    const { kind, operation_id } = resolved;
    // One of no payment of ours has no timeline; its own row says who and why.
    if (anomaly.payment_id === null) return;
    const detail = { action: 'resolve_anomaly', anomaly_id: anomaly.id, kind, evidence, reason, by };
    await insertTimelineEntry(tx, { payment_id: anomaly.payment_id, operation_id, type: 'operator', detail });
  });
}

/**
 * Takes a parked provider event off the list.
 * @throws OperatorRefusal where it is not parked (any more)
 */
export async function setParkedEventAside(
  { pool }: Pick<PaymentsContext, 'pool'>,
  event_id: string,
  { by, reason }: { readonly by: string; readonly reason: string },
): Promise<void> {
  await inTransaction(pool, async (tx) => {
    if (!(await setEventAside(tx, event_id, `set aside by ${by}: ${reason}`)))
      throw new OperatorRefusal('The event is not parked: there is nothing to resolve.');
  });
}

async function lockNamed(
  tx: pg.PoolClient,
  operation_id: string,
): Promise<{ change: Change; operation: Operation; locked: LockedOperation }> {
  const found = await findOperation(tx, operation_id);
  const change = found && (await lockForChange(tx, found.payment_id, { operation_id }, 'operator'));
  const locked = change && (await lockOperation(tx, operation_id));
  if (!locked) throw new OperatorRefusal(`There is no operation ${operation_id}.`);
  return { change, operation: change.operation(operation_id), locked };
}

/** What a provider can say nothing new about. */
function isFinal({ status }: Operation): boolean {
  return status === 'succeeded' || status === 'void';
}

/** What the provider would have said of an operation that went as it was asked for. */
function factOf(change: Change, operation: Operation, evidence: string): Fact {
  const { payment } = change;
  const { currency } = payment;
  if (operation.kind === 'refund') {
    return {
      type: 'refund',
      status: 'succeeded',
      provider_refund_id: evidence,
      provider_payment_id: payment.provider_payment_id ?? '',
      amount_minor: operation.amount_minor,
      currency,
      failure: null,
    };
  }
  const charge = chargeOf(payment, change.operations, operation);
  const provider_payment_id = operation.kind === 'charge' ? evidence : charge?.provider_payment_id;
  if (!charge || typeof provider_payment_id !== 'string')
    throw new OperatorRefusal(`It is not known which charge at the provider this ${operation.kind} belongs to.`);
  return {
    ...chargeEnd(operation, payment.capture),
    type: 'charge',
    provider_payment_id,
    amount_minor: charge.amount_minor,
    currency,
    amount_refunded_minor: 0n,
    failure: null,
    next_action: null,
  };
}

function chargeEnd(
  { kind, amount_minor }: Operation,
  capture: 'automatic' | 'manual',
): Pick<ChargeFact, 'status' | 'amount_captured_minor' | 'closed'> {
  if (kind === 'cancel') return { status: 'canceled', amount_captured_minor: 0n, closed: true };
  if (kind === 'charge' && capture === 'manual') {
    return { status: 'authorized', amount_captured_minor: 0n, closed: false };
  }
  return { status: 'succeeded', amount_captured_minor: amount_minor, closed: false };
}
