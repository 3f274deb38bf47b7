import { randomUUID } from 'node:crypto';
import type { Behaviour } from './behaviour.js';
import { type Decision, type MoneyRequest, moved, refundDecision, schedule, wrongState } from './decision.js';
import { Refusal } from './errors.js';
import type { Movement, PaymentRecord, RefundRecord, ScheduledChange } from './records.js';

/** @throws Refusal where nothing was captured, or more is asked than is left. */
export function decideRefund(
  payment: PaymentRecord,
  request: MoneyRequest,
  behaviour: Behaviour,
  now_ms: number,
): Decision {
  if (payment.status !== 'succeeded') throw wrongState('refunded', payment);
  const left_minor = refundable(payment);
  const amount_minor = request.amount_minor ?? left_minor;
  if (amount_minor > left_minor || amount_minor === 0) {
    throw new Refusal(400, 'amount_exceeds_remaining', `only ${left_minor} of the payment can still be refunded`);
  }
  const refund: RefundRecord = {
    id: `sbx_ref_${randomUUID()}`,
    reference: request.reference,
    payment_id: payment.id,
    status: 'processing',
    amount_minor: behaviour.other_amount_minor ?? amount_minor,
    currency: payment.currency,
    failure_code: null,
    visible_at_ms: now_ms + behaviour.lookup_lag_ms,
  };
  const { id: refund_id, reference } = refund;
  const about = {
    operation: 'refund',
    payment_id: payment.id,
    refund_id,
    amount_minor: refund.amount_minor,
    reference,
  } as const;
  const scheduled = schedule(behaviour, about, now_ms);
  if (behaviour.result === 'processing') {
    const held = { ...payment, refund_pending_minor: payment.refund_pending_minor + refund.amount_minor };
    return refundDecision(held, refund, [], now_ms, scheduled);
  }
  if (behaviour.result === 'decline') {
    const failed: RefundRecord = { ...refund, status: 'failed', failure_code: behaviour.failure_code };
    return refundDecision(payment, failed, [], now_ms, scheduled);
  }
  return refundDecision(...giveBack(payment, refund), now_ms);
}

/**
 * A refund that ends, or that is taken back after it had succeeded.
 * @throws Refusal where it has failed or was canceled already.
 */
export function decideRefundStatus(
  payment: PaymentRecord,
  refund: RefundRecord,
  status: 'succeeded' | 'failed' | 'canceled',
  now_ms: number,
): Decision {
  const isOpen = refund.status === 'processing';
  if (!isOpen && (refund.status !== 'succeeded' || status === 'succeeded')) {
    throw new Refusal(409, 'invalid_state', `the refund is ${refund.status}`);
  }
  if (status === 'succeeded') return refundDecision(...giveBack(released(payment, refund), refund), now_ms);
  const ended: RefundRecord = { ...refund, status, failure_code: status === 'failed' ? 'processing_error' : null };
  if (isOpen) return refundDecision(released(payment, refund), ended, [], now_ms);
  const takenBack = { ...payment, amount_refunded_minor: payment.amount_refunded_minor - refund.amount_minor };
  return refundDecision(
    takenBack,
    ended,
    [moved('refund_reversal', payment, refund.amount_minor, refund.reference)],
    now_ms,
  );
}

/** A scheduled end of a refund. Null: it has gone another way meanwhile. */
export function endRefund(
  change: ScheduledChange,
  payment: PaymentRecord,
  refund: RefundRecord,
  now_ms: number,
): Decision | null {
  if (refund.status === 'processing') return decideRefundStatus(payment, refund, change.result, now_ms);
  const revives = refund.status === 'failed' && change.result === 'succeeded';
  if (!revives || refund.amount_minor > refundable(payment)) return null;
  return refundDecision(...giveBack(payment, refund), now_ms);
}

function giveBack(payment: PaymentRecord, refund: RefundRecord): [PaymentRecord, RefundRecord, Movement[]] {
  const after = { ...payment, amount_refunded_minor: payment.amount_refunded_minor + refund.amount_minor };
  const done = { ...refund, status: 'succeeded', failure_code: null } as const;
  return [after, done, [moved('refund', payment, refund.amount_minor, refund.reference)]];
}

function released(payment: PaymentRecord, refund: RefundRecord): PaymentRecord {
  return { ...payment, refund_pending_minor: payment.refund_pending_minor - refund.amount_minor };
}

function refundable(payment: PaymentRecord): number {
  return payment.amount_captured_minor - payment.amount_refunded_minor - payment.refund_pending_minor;
}
