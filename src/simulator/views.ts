import { randomUUID } from 'node:crypto';
import type { EventRecord, PaymentRecord, RefundRecord } from './records.js';

/** A payment as the API shows it. */
export function paymentView(payment: PaymentRecord) {
  const { id, reference, status, amount_minor, amount_captured_minor, amount_refunded_minor, currency } = payment;
  const { failure_code, next_action, metadata } = payment;
  return {
    id,
    reference,
    status,
    amount_minor,
    amount_captured_minor,
    amount_refunded_minor,
    currency,
    failure_code,
    next_action,
    metadata,
  };
}

/** A refund as the API shows it. */
export function refundView(refund: RefundRecord) {
  const { id, reference, payment_id, status, amount_minor, currency, failure_code } = refund;
  return { id, reference, payment_id, status, amount_minor, currency, failure_code };
}

/** The event that tells of a payment as it is now; none while it is under way. */
export function paymentEvents(payment: PaymentRecord, now_ms: number): EventRecord[] {
  if (payment.status === 'processing') return [];
  return [makeEvent(`payment.${payment.status}`, { payment: paymentView(payment) }, now_ms)];
}

/** The event that tells of a refund and its payment as they are now; none while the refund is under way. */
export function refundEvents(payment: PaymentRecord, refund: RefundRecord, now_ms: number): EventRecord[] {
  if (refund.status === 'processing') return [];
  const data = { payment: paymentView(payment), refund: refundView(refund) };
  return [makeEvent(`refund.${refund.status}`, data, now_ms)];
}

/** The same news under another id, as providers send it at times. */
export function twinOf(event: EventRecord): EventRecord {
  return { ...event, id: newEventId() };
}

export function newEventId(): string {
  return `sbx_evt_${randomUUID()}`;
}

function makeEvent(type: string, data: object, now_ms: number): EventRecord {
  const body = JSON.stringify({ type, timestamp: new Date(now_ms).toISOString(), data });
  return { id: newEventId(), type, body };
}
