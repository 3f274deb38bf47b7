import Stripe from 'stripe';
import { createStripeProvider } from '../../src/providers/stripe/index.js';
import { problem } from '../support/stripe-objects.js';
import { type Fault as StandinFault, startStripeStandin } from '../support/stripe-standin.js';
import { type AdapterHarness, describeAdapterContract, type Fault, type WebhookOptions } from './adapter-contract.js';

/** What every adapter must do; what is Stripe's own is in the stripe-*.test.ts beside it. */
const [newest, older, foreign] = ['whsec_newest', 'whsec_older', 'whsec_foreign'];

const FAULTS: Readonly<Record<Fault, StandinFault>> = {
  hang: { commits: true, then: 'hang' },
  reset: { commits: true, then: 'reset' },
  unavailable: { commits: false, then: problem(503, { type: 'api_error', message: 'Try again.' }) },
  key_in_use: { commits: false, then: problem(409, { type: 'idempotency_error', code: 'idempotency_key_in_use' }) },
  rate_limited: { commits: false, then: problem(429, { type: 'invalid_request_error', code: 'rate_limit' }) },
  not_permitted: { commits: false, then: problem(403, { type: 'invalid_request_error' }) },
};

const INTENT = {
  id: 'pi_1',
  object: 'payment_intent',
  amount: 1000,
  amount_received: 1000,
  capture_method: 'automatic',
  currency: 'eur',
  last_payment_error: null,
  latest_charge: 'ch_1',
  next_action: null,
  status: 'succeeded',
};
const REFUND = {
  id: 're_1',
  object: 'refund',
  amount: 300,
  charge: 'ch_1',
  currency: 'eur',
  payment_intent: 'pi_1',
  reason: null,
  status: 'succeeded',
};

function webhook({ about, metadata, signed_with, age_s = 0, event_id = 'evt_1' }: WebhookOptions) {
  const [type, object] = {
    charge: ['payment_intent.succeeded', { ...INTENT, metadata }] as const,
    refund: ['refund.created', { ...REFUND, metadata }] as const,
    unknown_type: ['payment_intent.dreamt_of', { anything: true }] as const,
  }[about];
  const timestamp = Math.floor(Date.now() / 1000) - age_s;
  const payload = JSON.stringify({
    id: event_id,
    object: 'event',
    api_version: '2026-10-28.endive',
    created: timestamp,
    data: { object },
    livemode: false,
    type,
  });
  const secret = { newest_secret: newest, older_secret: older, unknown_secret: foreign }[signed_with];
  const header = Stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp });
  return { headers: { 'stripe-signature': header }, rawBody: Buffer.from(payload) };
}

async function startHarness(): Promise<AdapterHarness> {
  const stripe = await startStripeStandin();
  const providerAt = (api_base: string) =>
    createStripeProvider({ secret_key: stripe.secret_key, api_base, webhook_secrets: [newest, older] });
  return {
    provider: providerAt(stripe.url),
    // Nobody may listen at port 1 but root's own tcpmux.
    unreachable: providerAt('http://127.0.0.1:1'),
    payment_methods: {
      success: 'pm_card_visa',
      requires_action: 'pm_card_authenticationRequired',
      unusable: 'pm_nonsense',
      declines: [
        ['pm_card_visa_chargeDeclined', 'card_declined'],
        ['pm_card_visa_chargeDeclinedInsufficientFunds', 'insufficient_funds'],
        ['pm_card_visa_chargeDeclinedVelocityLimitExceeded', 'limit_exceeded'],
        ['pm_card_visa_chargeDeclinedFraudulent', 'fraud_suspected'],
        ['pm_card_chargeDeclinedExpiredCard', 'expired_card'],
        ['pm_card_chargeDeclinedIncorrectCvc', 'incorrect_cvc'],
        ['pm_card_chargeDeclinedProcessingError', 'processing_error'],
      ],
    },
    unheard_of: 'not_visible_yet',
    faultyCharge: async (fault) => {
      stripe.next('POST /v1/payment_intents', FAULTS[fault]);
      return 'pm_card_visa';
    },
    faultyNext: async (id, kind, fault) => {
      stripe.next(kind === 'refund' ? 'POST /v1/refunds' : `POST /v1/payment_intents/${id}/${kind}`, FAULTS[fault]);
    },
    movements: async (reference) => {
      const named = [...stripe.objects.all('payment_intent'), ...stripe.objects.all('refund')].filter(
        ({ metadata }) => metadata.reference === reference,
      );
      return named.filter(({ status }) => status === 'succeeded' || status === 'requires_capture').length;
    },
    catchUp: async () => stripe.catchUpSearch(),
    webhook,
    stop: () => stripe.close(),
  };
}

describeAdapterContract('stripe', startHarness);
