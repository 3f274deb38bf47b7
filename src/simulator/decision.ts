import { randomUUID } from 'node:crypto';
import type { Behaviour } from './behaviour.js';
import { Refusal } from './errors.js';
import type { Entry, MoneyOperation, Movement, PaymentRecord, RefundRecord, ScheduledChange } from './records.js';
import { paymentEvents, paymentView, refundEvents } from './views.js';

/** A request to move money, read and checked. */
export interface MoneyRequest {
  readonly operation: MoneyOperation;
  /** Null: all there is. A charge always names it. */
  readonly amount_minor: number | null;
  readonly reference: string | null;
  /** A charge's own. */
  readonly charge: ChargeDetails | null;
}

export interface ChargeDetails {
  readonly currency: string;
  readonly capture: 'automatic' | 'manual';
  readonly payment_method: string | null;
  readonly return_url: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  /** Where the customer would be sent, without the payment's id at its end. */
  readonly action_url: string;
}

/** What a request changes: the line for the ledger, and the payment and refund as they are afterwards. */
export interface Decision {
  readonly entry: Entry;
  readonly payment: PaymentRecord;
  readonly refund: RefundRecord | null;
  /** The answer is this instead. */
  readonly refusal: Refusal | null;
}

export function decision(
  payment: PaymentRecord,
  movements: readonly Movement[],
  now_ms: number,
  scheduled: ScheduledChange | null = null,
): Decision {
  const entry = { payment, movements, events: paymentEvents(payment, now_ms), ...(scheduled && { scheduled }) };
  return { entry, payment, refund: null, refusal: null };
}

export function refundDecision(
  payment: PaymentRecord,
  refund: RefundRecord,
  movements: readonly Movement[],
  now_ms: number,
  scheduled: ScheduledChange | null = null,
): Decision {
  const events = refundEvents(payment, refund, now_ms);
  return {
    entry: { payment, refund, movements, events, ...(scheduled && { scheduled }) },
    payment,
    refund,
    refusal: null,
  };
}

/** A capture or cancel that is declined: nothing changes, unless the behaviour says that it does later. */
export function declined(payment: PaymentRecord, failure_code: string, scheduled: ScheduledChange | null): Decision {
  const refusal = new Refusal(402, failure_code, 'the operation was declined');
  return { entry: scheduled ? { scheduled } : {}, payment, refund: null, refusal };
}

export function wrongState(what: string, payment: PaymentRecord): Refusal {
  return new Refusal(409, 'invalid_state', `a payment that is ${payment.status} can't be ${what}`, {
    payment: paymentView(payment),
  });
}

export function moved(
  kind: Movement['kind'],
  payment: PaymentRecord,
  amount_minor: number,
  reference: string | null,
): Movement {
  return { kind, amount_minor, currency: payment.currency, payment_id: payment.id, reference };
}

/** What comes later by itself, as the behaviour says; null: nothing. */
export function schedule(
  behaviour: Behaviour,
  about: Omit<ScheduledChange, 'id' | 'at_ms' | 'result'>,
  now_ms: number,
): ScheduledChange | null {
  if (!behaviour.later) return null;
  return { id: randomUUID(), at_ms: now_ms + behaviour.later.after_ms, result: behaviour.later.result, ...about };
}
