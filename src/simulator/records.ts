/**
 * What the simulated provider keeps. It has words of its own and imports nothing of the service, so that a mistake
 * of the service can't cancel itself here. Amounts are whole minor units, at most 2^53 − 1.
 */
export type PaymentStatus = 'processing' | 'requires_action' | 'authorized' | 'succeeded' | 'failed' | 'canceled';
export type RefundStatus = 'processing' | 'succeeded' | 'failed' | 'canceled';
export type MoneyOperation = 'charge' | 'capture' | 'cancel' | 'refund';

/** Why a payment fails. Each can be asked for with `pm_decline_<code>`. */
export const FAILURE_CODES = [
  'card_declined',
  'insufficient_funds',
  'expired_card',
  'incorrect_cvc',
  'incorrect_number',
  'authentication_failed',
  'fraud_suspected',
  'limit_exceeded',
  'amount_too_small',
  'amount_too_large',
  'currency_not_supported',
  'payment_method_invalid',
  'authorization_expired',
  'processing_error',
  'provider_rejected',
] as const;

export interface PaymentRecord {
  readonly id: string;
  readonly reference: string;
  readonly status: PaymentStatus;
  readonly amount_minor: number;
  readonly amount_captured_minor: number;
  /** Refunds that succeeded. */
  readonly amount_refunded_minor: number;
  /** Refunds that are under way: they count against what is captured, so that refunds never pass it. */
  readonly refund_pending_minor: number;
  readonly currency: string;
  readonly capture: 'automatic' | 'manual';
  readonly payment_method: string | null;
  readonly failure_code: string | null;
  readonly next_action: { readonly type: 'redirect'; readonly url: string } | null;
  readonly return_url: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  /** Look-ups by reference don't see it before (milliseconds since 1970); look-ups by id do. */
  readonly visible_at_ms: number;
}

export interface RefundRecord {
  readonly id: string;
  /** Null: made at the provider's own dashboard. */
  readonly reference: string | null;
  readonly payment_id: string;
  readonly status: RefundStatus;
  readonly amount_minor: number;
  readonly currency: string;
  readonly failure_code: string | null;
  readonly visible_at_ms: number;
}

/** Money that really moved. `refund_reversal`: a refund that had succeeded was taken back. */
export interface Movement {
  readonly kind: 'charge' | 'authorization' | 'capture' | 'cancel' | 'refund' | 'refund_reversal';
  readonly amount_minor: number;
  readonly currency: string;
  readonly payment_id: string;
  /** The reference of the charge or refund; of a capture or cancel, which have none, the idempotency key. */
  readonly reference: string | null;
}

/** The answer to an idempotency key: sent again for the same request. */
export interface KeyRecord {
  readonly key: string;
  readonly fingerprint: string;
  readonly status: number;
  readonly body: unknown;
}

/** A change that comes later by itself: the end of an asynchronous operation, a success after a decline. */
export interface ScheduledChange {
  readonly id: string;
  readonly at_ms: number;
  readonly operation: MoneyOperation;
  readonly result: 'succeeded' | 'failed';
  readonly payment_id: string;
  readonly refund_id: string | null;
  readonly amount_minor: number;
  readonly reference: string | null;
}

export interface EventRecord {
  readonly id: string;
  readonly type: string;
  /** The text that is signed and sent, always the same. */
  readonly body: string;
}

export interface CallRecord {
  readonly number: number;
  readonly operation: MoneyOperation | 'retrieve';
  readonly idempotency_key: string | null;
  readonly reference: string | null;
  readonly amount_minor: number | null;
  readonly currency: string | null;
  /** The HTTP status, `silent` where no answer was sent, null while it is under way. */
  readonly answer: number | 'silent' | null;
}

/** One line of the ledger: everything that changes together. */
export interface Entry {
  readonly payment?: PaymentRecord;
  readonly refund?: RefundRecord;
  readonly movements?: readonly Movement[];
  readonly key?: KeyRecord;
  readonly events?: readonly EventRecord[];
  readonly scheduled?: ScheduledChange;
  /** Scheduled changes that have happened or never will. */
  readonly unscheduled?: readonly string[];
  readonly forgot_keys?: true;
  /** The behaviour of this charge that shows once has been shown. */
  readonly shown_once?: string;
  readonly next_added?: { readonly payment_id: string; readonly operation: MoneyOperation; readonly behaviour: string };
  readonly next_taken?: { readonly payment_id: string; readonly operation: MoneyOperation };
  /** Webhook events that need not be sent any more. */
  readonly delivered?: string;
  readonly call?: CallRecord;
  readonly answered?: { readonly number: number; readonly answer: number | 'silent' };
}
