import { describe, expect, expectTypeOf, it } from 'vitest';
import type { z } from 'zod';
import { Payment as PaymentSchema, Refund as RefundSchema } from '../../../src/contract/schemas.js';
import { paymentView, refundView, type PaymentView, type RefundView } from '../../../src/contract/views.js';
import type { Operation, Payment } from '../../../src/domain/payment.js';

const payment: Payment = {
  id: '019b3c5e-7a10-7000-8000-000000000001',
  client_id: 'default',
  provider: 'sandbox',
  external_payment_id: 'order-1001',
  command_hash: Buffer.alloc(32),
  version: 3,
  status: 'succeeded',
  amount_minor: 1000n,
  currency: 'EUR',
  amount_captured_minor: 1000n,
  amount_refunded_minor: 5n,
  refund_reserved_minor: 10n,
  customer_id: 'customer-42',
  provider_payment_id: 'sbx_pay_1',
  payment_method: 'pm_success',
  capture: 'automatic',
  order_id: '1001',
  description: 'Two books',
  metadata: { z: '1', a: '2' },
  return_url: 'https://shop.example',
  failure: null,
  next_action: null,
  created_at: new Date('2026-01-31T10:00:00.123Z'),
  updated_at: new Date('2026-01-31T10:00:01Z'),
};

const refund: Operation = {
  id: '019b3c5e-7a10-7000-8000-000000000002',
  payment_id: payment.id,
  kind: 'refund',
  origin: 'client',
  try_number: 1,
  status: 'succeeded',
  amount_minor: 5n,
  idempotency_key: 'key',
  key_hash: Buffer.alloc(32),
  command_hash: Buffer.alloc(32),
  provider_key: 'f'.repeat(64),
  payment_method: null,
  reason: 'Book came damaged',
  excess_operation_id: null,
  provider_payment_id: 'sbx_pay_1',
  provider_refund_id: 'sbx_ref_1',
  failure: null,
  attempts_started: 1,
  attempts_finished: 1,
  first_attempt_at: null,
  closed_at: null,
  checks: 0,
  needs_review_at: null,
  resolved_by: null,
  saga_id: null,
  step_name: null,
  traceparent: null,
  created_at: new Date('2026-01-31T10:00:00.123Z'),
  updated_at: new Date('2026-01-31T10:00:01Z'),
};

describe('paymentView', () => {
  it('shows what the contract says, in its order, and nothing else', () => {
    expect(JSON.stringify(paymentView(payment))).toBe(
      '{"id":"019b3c5e-7a10-7000-8000-000000000001","status":"succeeded","amount":"10.00","currency":"EUR","amount_captured":"10.00",' +
        '"amount_refunded":"0.05","customer_id":"customer-42","external_payment_id":"order-1001","provider":"sandbox",' +
        '"provider_payment_id":"sbx_pay_1","payment_method":"pm_success","capture":"automatic","order_id":"1001","description":"Two books",' +
        '"metadata":{"z":"1","a":"2"},"failure":null,"next_action":null,"created_at":"2026-01-31T10:00:00.123Z","updated_at":"2026-01-31T10:00:01.000Z"}',
    );
  });

  it('shows null where there is nothing, never leaves a member out', () => {
    const bare: Payment = {
      ...payment,
      provider_payment_id: null,
      payment_method: null,
      order_id: null,
      description: null,
      metadata: null,
      return_url: null,
    };
    const shown = JSON.parse(JSON.stringify(paymentView(bare)));
    expect(Object.keys(shown)).toEqual(Object.keys(paymentView(payment)));
    expect(shown).toMatchObject({
      provider_payment_id: null,
      payment_method: null,
      order_id: null,
      description: null,
      metadata: null,
    });
  });

  it('shows a failure and an action with the members of the contract only', () => {
    const failure = { code: 'card_declined', message: 'Declined.', raw: 'secret' } as const;
    const next_action = { type: 'redirect', url: 'https://provider.example/1', token: 'secret' };
    const view = paymentView({ ...payment, failure, next_action });
    expect(view.failure).toEqual({ code: 'card_declined', message: 'Declined.' });
    expect(view.next_action).toEqual({ type: 'redirect', url: 'https://provider.example/1' });
  });

  it('uses the digits of the currency', () => {
    expect(paymentView({ ...payment, currency: 'JPY' })).toMatchObject({ amount: '1000', amount_refunded: '5' });
    expect(paymentView({ ...payment, currency: 'KWD' })).toMatchObject({ amount: '1.000', amount_refunded: '0.005' });
  });

  it('fits its schema, in value and type', () => {
    for (const currency of ['EUR', 'JPY', 'KWD', 'CLF']) {
      expect(PaymentSchema.parse(paymentView({ ...payment, currency }))).toEqual(paymentView({ ...payment, currency }));
    }
    expect(Object.keys(PaymentSchema.shape)).toEqual(Object.keys(paymentView(payment)));
    expectTypeOf<PaymentView>().toExtend<Readonly<z.infer<typeof PaymentSchema>>>();
  });
});

describe('refundView', () => {
  it('shows what the contract says, in its order, and nothing else', () => {
    expect(JSON.stringify(refundView(payment, refund))).toBe(
      '{"id":"019b3c5e-7a10-7000-8000-000000000002","payment_id":"019b3c5e-7a10-7000-8000-000000000001","status":"succeeded","amount":"0.05",' +
        '"currency":"EUR","reason":"Book came damaged","provider_refund_id":"sbx_ref_1","failure":null,' +
        '"created_at":"2026-01-31T10:00:00.123Z","updated_at":"2026-01-31T10:00:01.000Z"}',
    );
  });

  it.each([
    ['processing', 'processing'],
    ['succeeded', 'succeeded'],
    ['failed', 'failed'],
    ['void', 'processing'],
  ] as const)('shows an operation that is %s as %s', (status, shown) => {
    expect(refundView(payment, { ...refund, status }).status).toBe(shown);
  });

  it('shows a failure with the members of the contract only', () => {
    const failure = { code: 'provider_rejected', message: 'No.', raw: 'secret' } as const;
    expect(refundView(payment, { ...refund, failure }).failure).toEqual({ code: 'provider_rejected', message: 'No.' });
  });

  it('fits its schema, in value and type', () => {
    expect(RefundSchema.parse(refundView(payment, refund))).toEqual(refundView(payment, refund));
    expect(Object.keys(RefundSchema.shape)).toEqual(Object.keys(refundView(payment, refund)));
    expectTypeOf<RefundView>().toExtend<Readonly<z.infer<typeof RefundSchema>>>();
  });
});
