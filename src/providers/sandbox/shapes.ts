import { z } from 'zod';
import type { ChargeFact, RefundFact } from '../../domain/fact.js';
import type { ProviderMetadata } from '../provider.js';
import { type Reply, unreadable } from './client.js';
import { failureOf } from './failures.js';

const amount = z
  .number()
  .int()
  .min(0)
  .max(Number.MAX_SAFE_INTEGER)
  .transform((minor) => BigInt(minor));

/** A payment as the sandbox tells of it. Members that we don't know may be there. */
export const paymentShape = z.object({
  id: z.string().min(1),
  status: z.enum(['processing', 'requires_action', 'authorized', 'succeeded', 'failed', 'canceled']),
  amount_minor: amount,
  amount_captured_minor: amount,
  amount_refunded_minor: amount,
  currency: z.string().length(3),
  failure_code: z.string().nullable(),
  next_action: z.object({ type: z.string(), url: z.string() }).nullable(),
  /** Whatever others put on payments that are not ours. */
  metadata: z.record(z.string(), z.unknown()).nullish(),
});
type PaymentShape = z.output<typeof paymentShape>;

const metadataShape = z.object({ reference: z.string(), installation_id: z.string(), external_payment_id: z.string() });

export const refundShape = z.object({
  id: z.string().min(1),
  /** Null: made at the sandbox's own dashboard. */
  reference: z.string().nullable(),
  payment_id: z.string().min(1),
  status: z.enum(['processing', 'succeeded', 'failed', 'canceled']),
  amount_minor: amount,
  currency: z.string().length(3),
  failure_code: z.string().nullable(),
});
export type RefundShape = z.output<typeof refundShape>;

/** A refund within an event: its payment stands beside it, so what that tells may be left out. */
export const eventRefundShape = refundShape.partial({ payment_id: true, currency: true, failure_code: true });
type EventRefundShape = z.output<typeof eventRefundShape>;

export function wholeRefund(refund: EventRefundShape, payment: PaymentShape): RefundShape {
  const { payment_id = payment.id, currency = payment.currency, failure_code = null } = refund;
  return { ...refund, payment_id, currency, failure_code };
}

export const listOf = <Shape extends z.ZodType>(shape: Shape) => z.object({ data: z.array(shape) });

/** @throws ProviderError `unknown`: an answer came, but not one that tells what happened */
export function readAs<Shape extends z.ZodType>(shape: Shape, reply: Reply): z.output<Shape> {
  const result = shape.safeParse(reply.body);
  if (!result.success) throw unreadable(`can't be read: ${result.error.issues[0]?.path.join('.') ?? ''}`);
  return result.data;
}

/** A failed payment can still succeed until it is canceled: only then is it closed. */
export function chargeFact(payment: PaymentShape): ChargeFact {
  const { status, next_action } = payment;
  return {
    type: 'charge',
    status,
    provider_payment_id: payment.id,
    amount_minor: payment.amount_minor,
    currency: payment.currency,
    amount_captured_minor: payment.amount_captured_minor,
    amount_refunded_minor: payment.amount_refunded_minor,
    failure: status === 'failed' ? failureOf(payment.failure_code) : null,
    next_action: status === 'requires_action' ? next_action : null,
    closed: status === 'canceled',
  };
}

export function refundFact(refund: RefundShape): RefundFact {
  const { status } = refund;
  return {
    type: 'refund',
    status,
    provider_refund_id: refund.id,
    provider_payment_id: refund.payment_id,
    amount_minor: refund.amount_minor,
    currency: refund.currency,
    failure: status === 'failed' || status === 'canceled' ? failureOf(refund.failure_code) : null,
  };
}

/** The metadata that we gave, whole; null: not ours. */
export function ourMetadata({ metadata }: Pick<PaymentShape, 'metadata'>): ProviderMetadata | null {
  const ours = metadataShape.safeParse(metadata);
  return ours.success ? ours.data : null;
}
