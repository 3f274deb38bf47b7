import { randomUUID } from 'node:crypto';
import type { Behaviour } from './behaviour.js';
import { type Decision, decision, declined, type MoneyRequest, moved, schedule, wrongState } from './decision.js';
import { Refusal } from './errors.js';
import type { Movement, PaymentRecord, RefundRecord, ScheduledChange } from './records.js';
import { endRefund } from './refund-rules.js';

/** A new payment. One that is declined is a payment too. */
export function decideCharge(request: MoneyRequest, behaviour: Behaviour, now_ms: number): Decision {
  const { charge, amount_minor, reference } = request;
  if (!charge || amount_minor === null || reference === null) throw new Error('a charge without its details');
  const id = `sbx_pay_${randomUUID()}`;
  const asked: PaymentRecord = {
    id,
    reference,
    status: 'processing',
    amount_minor: behaviour.other_amount_minor ?? amount_minor,
    amount_captured_minor: 0,
    amount_refunded_minor: 0,
    refund_pending_minor: 0,
    currency: behaviour.other_currency ?? charge.currency,
    capture: charge.capture,
    payment_method: charge.payment_method,
    failure_code: null,
    next_action: null,
    return_url: charge.return_url,
    metadata: charge.metadata,
    visible_at_ms: now_ms + behaviour.lookup_lag_ms,
  };
  const about = {
    operation: 'charge',
    payment_id: id,
    refund_id: null,
    amount_minor: asked.amount_minor,
    reference,
  } as const;
  const scheduled = schedule(behaviour, about, now_ms);
  switch (behaviour.result) {
    case 'success':
      return decision(...take(asked), now_ms);
    case 'decline':
      return decision({ ...asked, status: 'failed', failure_code: behaviour.failure_code }, [], now_ms, scheduled);
    case 'requires_action': {
      const next_action = { type: 'redirect', url: charge.action_url + id } as const;
      return decision({ ...asked, status: 'requires_action', next_action }, [], now_ms);
    }
    case 'processing':
      return decision(asked, [], now_ms, scheduled);
  }
}

/** @throws Refusal where the payment is not authorized, or more is asked than is. */
export function decideCapture(
  payment: PaymentRecord,
  request: MoneyRequest,
  behaviour: Behaviour,
  now_ms: number,
): Decision {
  if (payment.status !== 'authorized') throw wrongState('captured', payment);
  const { reference } = request;
  const amount_minor = request.amount_minor ?? payment.amount_minor;
  if (amount_minor > payment.amount_minor) {
    throw new Refusal(400, 'amount_too_large', `only ${payment.amount_minor} is authorized`);
  }
  const taken_minor = behaviour.other_amount_minor ?? amount_minor;
  const about = {
    operation: 'capture',
    payment_id: payment.id,
    refund_id: null,
    amount_minor: taken_minor,
    reference,
  } as const;
  const scheduled = schedule(behaviour, about, now_ms);
  if (behaviour.result === 'decline') return declined(payment, behaviour.failure_code, scheduled);
  if (behaviour.result === 'processing') return decision({ ...payment, status: 'processing' }, [], now_ms, scheduled);
  return decision(...capture(payment, taken_minor, reference), now_ms);
}

/**
 * Ends an authorization or an open action, or closes a failed payment for good: it can't succeed any more.
 * @throws Refusal where money was taken, or may be at this moment.
 */
export function decideCancel(
  payment: PaymentRecord,
  request: MoneyRequest,
  behaviour: Behaviour,
  now_ms: number,
): Decision {
  if (payment.status === 'canceled') return { entry: {}, payment, refund: null, refusal: null };
  if (payment.status === 'succeeded' || payment.status === 'processing') throw wrongState('canceled', payment);
  const { reference } = request;
  const held_minor = payment.status === 'authorized' ? payment.amount_minor : 0;
  const about = {
    operation: 'cancel',
    payment_id: payment.id,
    refund_id: null,
    amount_minor: held_minor,
    reference,
  } as const;
  const scheduled = schedule(behaviour, about, now_ms);
  if (behaviour.result === 'decline') return declined(payment, behaviour.failure_code, scheduled);
  if (behaviour.result === 'processing') return decision({ ...payment, status: 'processing' }, [], now_ms, scheduled);
  return decision(...cancel(payment, held_minor, reference), now_ms);
}

/** A scheduled change whose time has come. Null: the payment has gone another way meanwhile, nothing happens. */
export function decideScheduled(
  change: ScheduledChange,
  payment: PaymentRecord,
  refund: RefundRecord | null,
  now_ms: number,
): Decision | null {
  const { operation, amount_minor, reference } = change;
  if (operation === 'refund') return refund && endRefund(change, payment, refund, now_ms);
  const before = operation === 'charge' ? 'failed' : 'authorized';
  if (payment.status !== 'processing' && payment.status !== before) return null;
  if (change.result === 'failed') {
    // What could not be captured in the end is no longer held either.
    const failure_code = operation === 'charge' ? 'processing_error' : 'authorization_expired';
    return decision({ ...payment, status: 'failed', failure_code }, [], now_ms);
  }
  if (operation === 'charge') return decision(...take(payment), now_ms);
  if (operation === 'capture') return decision(...capture(payment, amount_minor, reference), now_ms);
  return decision(...cancel(payment, amount_minor, reference), now_ms);
}

/**
 * What the customer did about an open action.
 * @throws Refusal where none is open.
 */
export function decideCompletion(payment: PaymentRecord, result: 'succeeded' | 'failed', now_ms: number): Decision {
  if (payment.status !== 'requires_action') throw wrongState('completed', payment);
  if (result === 'succeeded') return decision(...take(payment), now_ms);
  const failed = { ...payment, status: 'failed', failure_code: 'authentication_failed', next_action: null } as const;
  return decision(failed, [], now_ms);
}

/** @throws Refusal where nothing is authorized. */
export function decideExpiry(payment: PaymentRecord, now_ms: number): Decision {
  if (payment.status !== 'authorized') throw wrongState('expired', payment);
  return decision({ ...payment, status: 'failed', failure_code: 'authorization_expired' }, [], now_ms);
}

function take(payment: PaymentRecord): [PaymentRecord, Movement[]] {
  const isAutomatic = payment.capture === 'automatic';
  const after: PaymentRecord = {
    ...payment,
    status: isAutomatic ? 'succeeded' : 'authorized',
    amount_captured_minor: isAutomatic ? payment.amount_minor : 0,
    failure_code: null,
    next_action: null,
  };
  return [after, [moved(isAutomatic ? 'charge' : 'authorization', payment, payment.amount_minor, payment.reference)]];
}

/** The rest of the authorization is released: that is neither a refund nor a movement of its own. */
function capture(payment: PaymentRecord, amount_minor: number, reference: string | null): [PaymentRecord, Movement[]] {
  const after = { ...payment, status: 'succeeded', amount_captured_minor: amount_minor } as const;
  return [after, [moved('capture', payment, amount_minor, reference)]];
}

/** Only held money is released: ending an open action or closing a failed payment moves none. */
function cancel(payment: PaymentRecord, held_minor: number, reference: string | null): [PaymentRecord, Movement[]] {
  const after = { ...payment, status: 'canceled', next_action: null } as const;
  return [after, held_minor > 0 ? [moved('cancel', payment, held_minor, reference)] : []];
}
