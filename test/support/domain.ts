import { randomBytes, randomUUID } from 'node:crypto';
import { Change } from '../../src/domain/change.js';
import type { ChargeCommand } from '../../src/domain/command.js';
import type { ChargeFact, RefundFact } from '../../src/domain/fact.js';
import type { Operation, Payment } from '../../src/domain/payment.js';

export const NOW = new Date('2026-11-29T12:00:00.000Z');
export const FAILURE = { code: 'card_declined', message: 'The card was declined.' } as const;

/** A payment as it was just begun: 10.00 EUR, processing. */
export function aPayment(fields: Partial<Payment> = {}): Payment {
  return {
    id: 'payment',
    client_id: 'default',
    provider: 'sandbox',
    external_payment_id: 'order-1',
    command_hash: Buffer.alloc(32, 1),
    version: 1,
    status: 'processing',
    amount_minor: 1000n,
    currency: 'EUR',
    amount_captured_minor: 0n,
    amount_refunded_minor: 0n,
    refund_reserved_minor: 0n,
    customer_id: 'customer-1',
    provider_payment_id: null,
    payment_method: null,
    capture: 'automatic',
    order_id: null,
    description: null,
    metadata: null,
    return_url: null,
    failure: null,
    next_action: null,
    created_at: NOW,
    updated_at: NOW,
    ...fields,
  };
}

/** An operation as it was just begun: the payment's first charge. */
export function anOperation(fields: Partial<Operation> = {}): Operation {
  return {
    id: 'charge-1',
    payment_id: 'payment',
    kind: 'charge',
    origin: 'client',
    try_number: 1,
    status: 'processing',
    amount_minor: 1000n,
    idempotency_key: 'key-1',
    key_hash: Buffer.alloc(32, 2),
    command_hash: Buffer.alloc(32, 1),
    provider_key: 'provider-key-1',
    payment_method: null,
    reason: null,
    excess_operation_id: null,
    provider_payment_id: null,
    provider_refund_id: null,
    failure: null,
    attempts_started: 1,
    attempts_finished: 0,
    first_attempt_at: NOW,
    closed_at: null,
    checks: 0,
    needs_review_at: null,
    resolved_by: null,
    saga_id: null,
    step_name: null,
    traceparent: null,
    created_at: NOW,
    updated_at: NOW,
    ...fields,
  };
}

/** What a provider says of a charge that it has the money of, unless told otherwise. */
export function chargeFact(fields: Partial<ChargeFact> = {}): ChargeFact {
  const status = fields.status ?? 'succeeded';
  return {
    type: 'charge',
    status,
    provider_payment_id: 'pay-1',
    amount_minor: 1000n,
    currency: 'EUR',
    amount_captured_minor: status === 'succeeded' ? 1000n : 0n,
    amount_refunded_minor: 0n,
    failure: status === 'failed' ? FAILURE : null,
    next_action: status === 'requires_action' ? { type: 'redirect', url: 'https://provider.example/act' } : null,
    closed: status === 'canceled',
    ...fields,
  };
}

export function refundFact(fields: Partial<RefundFact> = {}): RefundFact {
  return {
    type: 'refund',
    status: 'succeeded',
    provider_refund_id: 'refund-at-provider',
    provider_payment_id: 'pay-1',
    amount_minor: 400n,
    currency: 'EUR',
    failure: null,
    ...fields,
  };
}

export function aCommand(fields: Partial<ChargeCommand> = {}): ChargeCommand {
  return {
    kind: 'charge',
    hash: Buffer.alloc(32, 1),
    amount_minor: 1000n,
    currency: 'EUR',
    customer_id: 'customer-1',
    external_payment_id: `order-${randomUUID()}`,
    provider: 'sandbox',
    payment_method: null,
    capture: 'automatic',
    order_id: null,
    description: null,
    metadata: null,
    return_url: null,
    ...fields,
  };
}

export function newHash(): Buffer {
  return randomBytes(32);
}

/** A minute later, under the payment's lock. */
export function changeOf(
  payment: Payment,
  operations: readonly Operation[],
  known_anomalies?: ReadonlySet<string>,
): Change {
  return new Change(payment, operations, new Date(NOW.getTime() + 60_000), 'webhook', known_anomalies);
}
