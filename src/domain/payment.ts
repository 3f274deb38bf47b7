/** The words of the domain (docs/architecture.md): a payment, its operations, and what each can be. */

export const PAYMENT_STATUSES = [
  'processing',
  'requires_action',
  'authorized',
  'succeeded',
  'failed',
  'canceled',
] as const;
export type PaymentStatus = (typeof PAYMENT_STATUSES)[number];

export const OPERATION_KINDS = ['charge', 'capture', 'cancel', 'refund'] as const;
export type OperationKind = (typeof OPERATION_KINDS)[number];

/** `void`: a new try of a charge that was never sent, because the try before it turned out to have succeeded. */
export type OperationStatus = 'processing' | 'requires_action' | 'authorized' | 'succeeded' | 'failed' | 'void';

export type CaptureMode = 'automatic' | 'manual';

/** Who began an operation: a client's command, somebody at the provider's own dashboard, or AUTO_REFUND_ANOMALIES. */
export type OperationOrigin = 'client' | 'provider' | 'auto_refund';

/** Why a charge or another operation did not succeed. The list is closed: adapters map what they hear to it. */
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
export type FailureCode = (typeof FAILURE_CODES)[number];

export interface Failure {
  readonly code: FailureCode;
  readonly message: string;
}

/** What the customer has to do before a payment in `requires_action` goes on. */
export interface NextAction {
  readonly type: string;
  readonly url: string;
}

/** A row of `payment`. Amounts are whole minor units of `currency`. */
export interface Payment {
  readonly id: string;
  readonly client_id: string;
  readonly provider: string;
  readonly external_payment_id: string;
  readonly command_hash: Buffer;
  readonly version: number;
  readonly status: PaymentStatus;
  readonly amount_minor: bigint;
  readonly currency: string;
  readonly amount_captured_minor: bigint;
  readonly amount_refunded_minor: bigint;
  /** Refunds that are pending or succeeded: what admission counts against `amount_captured_minor`. */
  readonly refund_reserved_minor: bigint;
  readonly customer_id: string;
  readonly provider_payment_id: string | null;
  readonly payment_method: string | null;
  readonly capture: CaptureMode;
  readonly order_id: string | null;
  readonly description: string | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly return_url: string | null;
  readonly failure: Failure | null;
  readonly next_action: NextAction | null;
  readonly created_at: Date;
  readonly updated_at: Date;
}

/** A row of `operation`: one money movement, asked for once, attempted as often as it takes. */
export interface Operation {
  readonly id: string;
  readonly payment_id: string;
  readonly kind: OperationKind;
  readonly origin: OperationOrigin;
  readonly try_number: number;
  readonly status: OperationStatus;
  readonly amount_minor: bigint;
  readonly idempotency_key: string | null;
  readonly key_hash: Buffer | null;
  readonly command_hash: Buffer | null;
  /** The provider's idempotency key, and our reference there (64 hexadecimal digits). */
  readonly provider_key: string;
  readonly payment_method: string | null;
  readonly reason: string | null;
  readonly excess_operation_id: string | null;
  readonly provider_payment_id: string | null;
  readonly provider_refund_id: string | null;
  readonly failure: Failure | null;
  readonly attempts_started: number;
  readonly attempts_finished: number;
  readonly first_attempt_at: Date | null;
  readonly closed_at: Date | null;
  readonly checks: number;
  readonly needs_review_at: Date | null;
  /** The operator who ended it without the provider's word. */
  readonly resolved_by: string | null;
  readonly saga_id: string | null;
  readonly step_name: string | null;
  readonly traceparent: string | null;
  readonly created_at: Date;
  readonly updated_at: Date;
}
