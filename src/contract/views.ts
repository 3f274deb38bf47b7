import { formatAmount } from '../domain/money.js';
import type { CaptureMode, Failure, NextAction, Operation, Payment, PaymentStatus } from '../domain/payment.js';

/** A payment as callers see it. The member order is part of the contract: stored answers are compared as bytes. */
export interface PaymentView {
  readonly id: string;
  readonly status: PaymentStatus;
  readonly amount: string;
  readonly currency: string;
  readonly amount_captured: string;
  readonly amount_refunded: string;
  readonly customer_id: string;
  readonly external_payment_id: string;
  readonly provider: string;
  readonly provider_payment_id: string | null;
  readonly payment_method: string | null;
  readonly capture: CaptureMode;
  readonly order_id: string | null;
  readonly description: string | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly failure: Failure | null;
  readonly next_action: NextAction | null;
  readonly created_at: string;
  readonly updated_at: string;
}

export type RefundStatus = 'processing' | 'succeeded' | 'failed';

/** A refund as callers see it. */
export interface RefundView {
  readonly id: string;
  readonly payment_id: string;
  readonly status: RefundStatus;
  readonly amount: string;
  readonly currency: string;
  readonly reason: string | null;
  readonly provider_refund_id: string | null;
  readonly failure: Failure | null;
  readonly created_at: string;
  readonly updated_at: string;
}

/** A payment, ready for JSON.stringify: amounts with the currency's digits, times RFC 3339 UTC with milliseconds. */
export function paymentView(payment: Payment): PaymentView {
  const { currency, failure, next_action } = payment;
  return {
    id: payment.id,
    status: payment.status,
    amount: formatAmount(payment.amount_minor, currency),
    currency,
    amount_captured: formatAmount(payment.amount_captured_minor, currency),
    amount_refunded: formatAmount(payment.amount_refunded_minor, currency),
    customer_id: payment.customer_id,
    external_payment_id: payment.external_payment_id,
    provider: payment.provider,
    provider_payment_id: payment.provider_payment_id,
    payment_method: payment.payment_method,
    capture: payment.capture,
    order_id: payment.order_id,
    description: payment.description,
    metadata: payment.metadata,
    failure: failure === null ? null : { code: failure.code, message: failure.message },
    next_action: next_action === null ? null : { type: next_action.type, url: next_action.url },
    created_at: payment.created_at.toISOString(),
    updated_at: payment.updated_at.toISOString(),
  };
}

/** A refund, ready for JSON.stringify. `operation` is one of kind `refund` of that payment. */
export function refundView(payment: Pick<Payment, 'id' | 'currency'>, operation: Operation): RefundView {
  const { failure } = operation;
  return {
    id: operation.id,
    payment_id: payment.id,
    status: refundStatus(operation),
    amount: formatAmount(operation.amount_minor, payment.currency),
    currency: payment.currency,
    reason: operation.reason,
    provider_refund_id: operation.provider_refund_id,
    failure: failure === null ? null : { code: failure.code, message: failure.message },
    created_at: operation.created_at.toISOString(),
    updated_at: operation.updated_at.toISOString(),
  };
}

/** A refund is never `requires_action`, `authorized` or `void`; a view must not fail over it after a commit. */
function refundStatus({ status }: Operation): RefundStatus {
  return status === 'succeeded' || status === 'failed' ? status : 'processing';
}
