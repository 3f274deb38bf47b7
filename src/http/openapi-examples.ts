import type { PaymentView } from '../contract/views.js';
import type { DocumentedExample } from './openapi-route.js';

/**
 * Bodies that work as they stand, on the sandbox: "Try it out" begins with the first. Only what has to be said is in
 * them, so that they also fit a deployment with another provider, given a token of its own.
 */
export const CHARGE_EXAMPLES = {
  charge: {
    summary: 'A charge',
    value: {
      amount: '10.00',
      currency: 'EUR',
      customer_id: 'customer-42',
      external_payment_id: 'order-1001',
      payment_method: 'pm_success',
    },
  },
  declined: {
    summary: 'A charge that is declined',
    value: {
      amount: '10.00',
      currency: 'EUR',
      customer_id: 'customer-42',
      external_payment_id: 'order-1002',
      payment_method: 'pm_decline_insufficient_funds',
    },
  },
  authorization: {
    summary: 'An authorization, to be captured or canceled',
    value: {
      amount: '10.00',
      currency: 'EUR',
      customer_id: 'customer-42',
      external_payment_id: 'order-1003',
      payment_method: 'pm_success',
      capture: 'manual',
      description: 'Two books',
      metadata: { cart: 'c-118' },
    },
  },
} as const satisfies Record<string, DocumentedExample>;

export const CAPTURE_EXAMPLES = {
  all: { summary: 'All that is authorized', value: {} },
  part: { summary: 'A part; the rest is released', value: { amount: '4.00' } },
} as const satisfies Record<string, DocumentedExample>;

export const REFUND_EXAMPLES = {
  part: { summary: 'A part', value: { amount: '4.00', reason: 'Book came damaged' } },
  all: { summary: 'All that is left', value: {} },
} as const satisfies Record<string, DocumentedExample>;

const SUCCEEDED: PaymentView = {
  id: '019b3c5e-7a10-7000-8000-000000000001',
  status: 'succeeded',
  amount: '10.00',
  currency: 'EUR',
  amount_captured: '10.00',
  amount_refunded: '0.00',
  customer_id: 'customer-42',
  external_payment_id: 'order-1001',
  provider: 'sandbox',
  provider_payment_id: 'sbx_pay_1',
  payment_method: 'pm_success',
  capture: 'automatic',
  order_id: null,
  description: null,
  metadata: null,
  failure: null,
  next_action: null,
  created_at: '2026-01-31T10:00:00.000Z',
  updated_at: '2026-01-31T10:00:00.120Z',
};

/** What a charge answers when its outcome is known: a decline is an outcome, not an error. */
export const CHARGED_EXAMPLES = {
  succeeded: { summary: 'Charged', value: SUCCEEDED },
  failed: {
    summary: 'Declined',
    value: {
      ...SUCCEEDED,
      id: '019b3c5e-7a10-7000-8000-000000000002',
      status: 'failed',
      amount_captured: '0.00',
      external_payment_id: 'order-1002',
      provider_payment_id: 'sbx_pay_2',
      payment_method: 'pm_decline_insufficient_funds',
      failure: { code: 'insufficient_funds', message: 'The account does not hold enough money.' },
    } satisfies PaymentView,
  },
} as const satisfies Record<string, DocumentedExample>;
