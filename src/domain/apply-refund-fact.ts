import type { Change } from './change.js';
import type { RefundFact } from './fact.js';
import type { Failure, Operation, PaymentStatus } from './payment.js';

const REFUND_FAILED: Failure = { code: 'processing_error', message: 'The provider could not give the money back.' };

/** What was captured is not known yet: a refund that is heard of first is compared once it is. */
const MAY_BE_TAKEN: ReadonlySet<PaymentStatus> = new Set(['processing', 'requires_action', 'authorized']);

/**
 * Applies what a provider says of one refund to its operation. The payment's counters follow: `refund_reserved` holds
 * what is pending or succeeded, `amount_refunded` what succeeded. A refund of money taken twice concerns that excess only
 * and leaves both alone.
 */
export function applyRefundFact(change: Change, operation_id: string, fact: RefundFact): void {
  const known = change.operation(operation_id);
  if (known.provider_refund_id === null)
    change.updateOperation(operation_id, { provider_refund_id: fact.provider_refund_id });
  if (fact.status === 'processing') return;
  if (fact.status === 'succeeded') return succeed(change, known, fact);
  failRefund(change, known, fact.failure ?? REFUND_FAILED);
}

/**
 * A refund that no client asked for: made at the provider's own side, or of money taken in excess. Caps do not hold for
 * facts.
 */
export function addRefund(change: Change, operation: Operation): void {
  change.addOperation(operation);
  if (!isOfPayment(change, operation)) return;
  change.updatePayment({ refund_reserved_minor: change.payment.refund_reserved_minor + operation.amount_minor });
}

/**
 * Whether a refund gives back what the payment itself has captured, and not what was taken beside it. Money taken after a
 * cancel is excess too, and yet the payment's own.
 */
function isOfPayment(change: Change, refund: Operation): boolean {
  if (refund.excess_operation_id === null) return true;
  const { provider_payment_id } = change.operation(refund.excess_operation_id);
  return provider_payment_id !== null && provider_payment_id === change.payment.provider_payment_id;
}

function succeed(change: Change, known: Operation, fact: RefundFact): void {
  if (known.status === 'succeeded') return;
  // A provider's own "failed" comes after its "succeeded": an older "succeeded" that arrives late is no news. Only one
  // that an operator gave up, without the provider's word, can still turn out to have happened.
  if (known.status === 'failed' && known.resolved_by === null) return;
  const wasGivenUp = known.status === 'failed';
  if (!change.moveOperation(known.id, 'succeeded', { failure: null, needs_review_at: null })) return;
  if (wasGivenUp) change.raise('late_success', known.id, { resolved_by: known.resolved_by ?? '' });
  if (fact.currency !== change.payment.currency) {
    change.raise('currency_mismatch', known.id, { asked: change.payment.currency, told: fact.currency });
  } else if (fact.amount_minor !== known.amount_minor) {
    change.raise('amount_mismatch', known.id, { asked: String(known.amount_minor), told: String(fact.amount_minor) });
  }
  if (isOfPayment(change, known)) {
    // A number of another currency is none that could be counted in ours.
    const given_minor = fact.currency === change.payment.currency ? fact.amount_minor : known.amount_minor;
    change.updatePayment({
      amount_refunded_minor: change.payment.amount_refunded_minor + given_minor,
      refund_reserved_minor:
        change.payment.refund_reserved_minor + given_minor - (wasGivenUp ? 0n : known.amount_minor),
    });
    change.updateOperation(known.id, { amount_minor: given_minor });
    if (!MAY_BE_TAKEN.has(change.payment.status)) checkRefunded(change, known.id);
  }
  change.publish('RefundSucceeded.v1', known.id);
}

/** Raises it where more was refunded than captured. */
export function checkRefunded(change: Change, operation_id: string): void {
  const { amount_captured_minor: captured, amount_refunded_minor: refunded } = change.payment;
  if (refunded <= captured) return;
  change.raise('refunded_too_much', operation_id, { captured: String(captured), refunded: String(refunded) });
}

/** Ends a refund that gave nothing back, or that the provider took back: its amount is free again. */
export function failRefund(change: Change, known: Operation, failure: Failure): void {
  const had = known.status;
  if (!change.moveOperation(known.id, 'failed', { failure, needs_review_at: null })) return;
  if (isOfPayment(change, known)) {
    change.updatePayment({
      refund_reserved_minor: change.payment.refund_reserved_minor - known.amount_minor,
      amount_refunded_minor: change.payment.amount_refunded_minor - (had === 'succeeded' ? known.amount_minor : 0n),
    });
  }
  change.publish('RefundFailed.v1', known.id);
}
