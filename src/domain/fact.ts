import type { Failure, NextAction } from './payment.js';

/**
 * What a provider says about one charge: an answer, a webhook or a look-up, in our words. Amounts are whole minor
 * units and totals (not differences): the same fact told twice, or late, is the same fact.
 */
export interface ChargeFact {
  readonly type: 'charge';
  readonly status: 'processing' | 'requires_action' | 'authorized' | 'succeeded' | 'failed' | 'canceled';
  /** The provider's name for the charge. */
  readonly provider_payment_id: string;
  /** What was authorized or charged. */
  readonly amount_minor: bigint;
  readonly currency: string;
  readonly amount_captured_minor: bigint;
  readonly amount_refunded_minor: bigint;
  /** The end of an authorization is `authorization_expired`, or closed: every other failure is of a time before it. */
  readonly failure: Failure | null;
  readonly next_action: NextAction | null;
  /** `failed` only: it is known that this charge can't succeed any more. `canceled` always is. */
  readonly closed: boolean;
}

/** What a provider says about one refund. `canceled` is a refund that never reached the customer. */
export interface RefundFact {
  readonly type: 'refund';
  readonly status: 'processing' | 'succeeded' | 'failed' | 'canceled';
  readonly provider_refund_id: string;
  readonly provider_payment_id: string;
  readonly amount_minor: bigint;
  readonly currency: string;
  readonly failure: Failure | null;
}

export type Fact = ChargeFact | RefundFact;
