import type pg from 'pg';
import { newId } from '../domain/id.js';
import { applyFact } from '../domain/apply-outcome.js';
import { addRefund, applyRefundFact } from '../domain/apply-refund-fact.js';
import type { Anomaly, Change } from '../domain/change.js';
import { operationProviderKey } from '../domain/command-hash.js';
import type { Fact, RefundFact } from '../domain/fact.js';
import type { Operation } from '../domain/payment.js';
import type { ProviderEvent } from '../providers/provider.js';
import { emptyOperation } from '../store/begin-charge.js';
import { findByProviderPayment, findByReference, type Found } from '../store/find-operation.js';
import { insertAnomalies, insertEvents } from '../store/payments.js';
import { markProcessed } from '../store/processed-event.js';
import { type EventOutcome, isKnownToBeMissing, keepEvent } from '../store/provider-events.js';
import { lockForChange, writeChange } from './change-payment.js';
import type { PaymentsContext } from './context.js';
import { PAYMENT_EVENTS_TOPIC } from './outbox-rows.js';

/**
 * Applies a provider's notification, once per event id: mark, event, fact, every waiting answer and our own events in
 * the caller's transaction. The fact goes to the operation that it names; the payment follows as on every other channel.
 * @param trace told whose event it is as soon as that is known, for the case that the transaction fails
 */
export async function applyEvent(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  provider: string,
  event: ProviderEvent,
  trace: { found: Found | null },
): Promise<EventOutcome | 'duplicate'> {
  if (!(await markProcessed(tx, `webhook:${provider}`, event.event_id))) return 'duplicate';
  const { fact } = event;
  if (!fact) return keepEvent(tx, provider, event, { outcome: 'ignored' });
  const found = await locate(ctx, tx, provider, event, fact);
  if (found === 'foreign') return keepEvent(tx, provider, event, { outcome: 'foreign' });
  if (found === 'unknown') return unknownOperation(ctx, tx, provider, event, null);

  trace.found = found;
  const refunds = fact.type === 'refund' ? refundSelection(event, fact) : {};
  const change = await lockForChange(tx, found.payment_id, refunds, 'webhook');
  if (!change) throw new Error(`payment ${found.payment_id} is gone`);
  const operation_id = applyTo(ctx, change, found, event, fact);
  if (operation_id === null) return unknownOperation(ctx, tx, provider, event, change);
  const outcome = change.isEmpty ? 'no_change' : 'applied';
  await writeChange(ctx, tx, change);
  return keepEvent(tx, provider, event, { outcome, payment_id: found.payment_id, operation_id });
}

/** Whose event it is. R4 commits our row before the call, so that an event of our installation finds its operation. */
async function locate(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  provider: string,
  event: ProviderEvent,
  fact: Fact,
): Promise<Found | 'foreign' | 'unknown'> {
  const metadata = event.charge_metadata ?? event.refund_metadata;
  if (metadata === null) {
    // A refund made at the provider's dashboard may carry nothing of ours; the charge that it gives back is known.
    const found =
      fact.type === 'refund' ? await findByProviderPayment(tx, provider, fact.provider_payment_id) : undefined;
    return found ?? 'foreign';
  }
  if (metadata.installation_id !== ctx.installation_id) return 'foreign';
  const found = await findByReference(tx, provider, metadata.external_payment_id, metadata.reference);
  if (found) return found;
  return (await findByProviderPayment(tx, provider, fact.provider_payment_id)) ?? 'unknown';
}

function refundSelection(event: ProviderEvent, fact: RefundFact) {
  const { provider_refund_id } = fact;
  return event.refund_metadata
    ? { provider_refund_id, provider_key: event.refund_metadata.reference }
    : { provider_refund_id };
}

/** Applies the fact to what it names. Null: it names an operation of ours that we do not have. */
function applyTo(ctx: PaymentsContext, change: Change, found: Found, event: ProviderEvent, fact: Fact): string | null {
  if (fact.type === 'charge') {
    applyFact(change, found.operation_id, fact);
    return found.operation_id;
  }
  const refunds = change.operations.filter(({ kind }) => kind === 'refund');
  const isOurs = event.refund_metadata?.installation_id === ctx.installation_id;
  const asked = isOurs ? refunds.find((o) => o.provider_key === event.refund_metadata?.reference) : undefined;
  if (isOurs && !asked) return null;
  const known =
    refunds.find((o) => o.provider_refund_id === fact.provider_refund_id) ??
    (asked?.provider_refund_id === null ? asked : undefined);
  const operation = known ?? foreignRefund(ctx, change, fact);
  if (!known) addRefund(change, operation);
  applyRefundFact(change, operation.id, fact);
  if (!known && asked && change.operation(operation.id).status === 'succeeded') {
    // The provider forgot our key and gave the money back again under the same reference.
    change.raise('refunded_too_much', operation.id, { other_operation_id: asked.id });
  }
  return operation.id;
}

/** A refund that was made at the provider's own side, as an operation of ours. */
function foreignRefund(ctx: PaymentsContext, change: Change, fact: RefundFact): Operation {
  const { client_id, provider, external_payment_id, id } = change.payment;
  const charge = change.operations.find(
    (o) => o.kind === 'charge' && o.provider_payment_id === fact.provider_payment_id,
  );
  const isExcess = charge !== undefined && change.payment.provider_payment_id !== fact.provider_payment_id;
  const idempotency_key = `refund at the provider ${fact.provider_refund_id}`;
  return {
    ...emptyOperation(change.now),
    id: newId(),
    payment_id: id,
    kind: 'refund',
    origin: 'provider',
    // One in another currency has no amount in the payment's; what it was told to be stands in its anomaly.
    amount_minor: fact.currency === change.payment.currency ? fact.amount_minor : 0n,
    provider_key: operationProviderKey({
      installation_id: ctx.installation_id,
      client_id,
      provider,
      external_payment_id,
      kind: 'refund',
      idempotency_key,
    }),
    provider_refund_id: fact.provider_refund_id,
    excess_operation_id: isExcess ? charge.id : null,
    attempts_started: 0,
    first_attempt_at: null,
  };
}

/**
 * An operation of our installation that we do not have: an anomaly, of its payment where that is known. Providers tell of
 * one thing in several events; it is one anomaly while nobody has resolved it.
 */
async function unknownOperation(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  provider: string,
  event: ProviderEvent,
  change: Change | null,
): Promise<EventOutcome> {
  const { event_id, fact } = event;
  const reference = (event.refund_metadata ?? event.charge_metadata)?.reference ?? '';
  const detail = { provider, event_id, reference, provider_payment_id: fact?.provider_payment_id ?? '' };
  const anomaly: Anomaly = { kind: 'unknown_operation', operation_id: null, detail };
  if (!(await isKnownToBeMissing(tx, reference))) {
    if (change) await writeChange(ctx, tx, withAnomaly(change, anomaly));
    else await recordWithoutPayment(ctx, tx, reference, anomaly);
  }
  const payment_id = change?.payment.id ?? null;
  return keepEvent(tx, provider, event, { outcome: 'unknown_operation', payment_id });
}

/** Beside `raise`, which knows one anomaly of a kind where there is no operation: of a payment two may be missing. */
function withAnomaly(change: Change, anomaly: Anomaly): Change {
  change.anomalies.push(anomaly);
  change.publish('PaymentAnomalyDetected.v1', null, anomaly);
  return change;
}

async function recordWithoutPayment(
  ctx: PaymentsContext,
  tx: pg.PoolClient,
  reference: string,
  anomaly: Anomaly,
): Promise<void> {
  const { kind, detail } = anomaly;
  await insertAnomalies(tx, null, [anomaly]);
  await insertEvents(tx, [
    {
      id: newId(),
      topic: PAYMENT_EVENTS_TOPIC,
      key: reference,
      sequence: 0,
      type: 'PaymentAnomalyDetected.v1',
      data: JSON.stringify({ payment_id: null, operation_id: null, payment: null, anomaly: { kind, ...detail } }),
      traceparent: null,
    },
  ]);
  ctx.metrics.countAnomaly(kind);
  ctx.logger.warn({ anomaly: kind, ...detail }, 'anomaly');
}
