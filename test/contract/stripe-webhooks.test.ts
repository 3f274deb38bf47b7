import Stripe from 'stripe';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { InvalidSignature, type PaymentProvider, type ProviderEvent } from '../../src/providers/provider.js';
import { createStripeProvider } from '../../src/providers/stripe/index.js';
import { problem, type Stored } from '../support/stripe-objects.js';
import { chargeRequest, providerErrorOf } from '../support/stripe-requests.js';
import { startStripeStandin, type StripeStandin } from '../support/stripe-standin.js';

let stripe: StripeStandin;
let provider: PaymentProvider;
let references = 0;
const limit = { timeout_ms: 5000 };

beforeAll(async () => {
  stripe = await startStripeStandin();
  provider = withSecrets([stripe.webhook_secret]);
});
afterAll(() => stripe.close());

function withSecrets(webhook_secrets: string[], secret_key = stripe.secret_key): PaymentProvider {
  return createStripeProvider({ secret_key, api_base: stripe.url, webhook_secrets });
}

/** A charge made through the adapter, and how it stands at Stripe. */
async function charged(
  capture: 'automatic' | 'manual' = 'automatic',
): Promise<{ reference: string; intent: Stored; charge: Stored }> {
  references += 1;
  const reference = `webhook-${references}`;
  const fact = await provider.charge(chargeRequest(reference, { capture }), { ...limit, provider_key: reference });
  const intent = stripe.objects.find(fact.provider_payment_id);
  if (!intent) throw new Error('no intent');
  return { reference, intent, charge: stripe.objects.chargeOf(intent.id) };
}

function heard(type: string, object: Stored, overrides: Record<string, unknown> = {}): ProviderEvent {
  const { headers, body } = stripe.event(type, object, overrides);
  return provider.parseWebhook(headers, body);
}

describe('signatures', () => {
  const body = Buffer.from(
    JSON.stringify({ id: 'evt_1', object: 'event', type: 'ping', created: 1, data: { object: {} } }),
  );
  const now_s = Math.floor(Date.now() / 1000);
  const sign = (timestamp = now_s, secret = 'whsec_standin', scheme = 'v1'): string =>
    Stripe.webhooks.generateTestHeaderString({ payload: body.toString(), secret, timestamp, scheme });
  const signature = (header: string): string => header.split(',')[1] ?? '';
  const parse = (header: string | undefined, bytes: Buffer = body, by = provider): string =>
    by.parseWebhook(header === undefined ? {} : { 'stripe-signature': header }, bytes).event_id;

  it('accepts the SDK’s own signature', () => {
    expect(parse(sign())).toBe('evt_1');
  });
  it('accepts one right v1 among several, and beside a v0', () => {
    const wrong = `v1=${'0'.repeat(64)}`;
    const v0 = signature(sign(now_s, 'whsec_other', 'v0'));
    expect(parse(`t=${now_s},${wrong},${signature(sign())},${v0}`)).toBe('evt_1');
  });
  it('accepts every configured secret, while one is rolled', () => {
    const rolling = withSecrets(['whsec_new', 'whsec_standin']);
    expect(parse(sign(now_s, 'whsec_new'), body, rolling)).toBe('evt_1');
    expect(parse(sign(), body, rolling)).toBe('evt_1');
  });
  it('accepts up to 5 minutes either way', () => {
    expect(parse(sign(now_s - 290))).toBe('evt_1');
    expect(parse(sign(now_s + 290))).toBe('evt_1');
  });

  it.each<[string, () => string | undefined, Buffer?]>([
    ['no header', () => undefined],
    ['an empty header', () => ''],
    ['another secret', () => sign(now_s, 'whsec_other')],
    ['only v0, even with the right secret', () => sign(now_s, 'whsec_standin', 'v0')],
    ['no time', () => signature(sign())],
    ['two times', () => `t=${now_s - 1},${sign()}`],
    ['a time that is none', () => `t=soon,${signature(sign())}`],
    ['an empty v1', () => `t=${now_s},v1=`],
    ['more than 5 minutes ago', () => sign(now_s - 310)],
    ['more than 5 minutes ahead', () => sign(now_s + 310)],
    ['another time than was signed', () => `t=${now_s + 1},${signature(sign())}`],
    ['other bytes, even if the same JSON', () => sign(), Buffer.from(`${body.toString()} `)],
    ['no body', () => sign(), Buffer.alloc(0)],
  ])('refuses %s', (_, header, bytes) => {
    expect(() => parse(header(), bytes)).toThrow(InvalidSignature);
  });

  it('what is signed but no JSON or no event is an error that says so, and no bad signature', () => {
    for (const text of ['not json', '"text"', '{}', '[]']) {
      const header = Stripe.webhooks.generateTestHeaderString({ payload: text, secret: 'whsec_standin' });
      const run = () => parse(header, Buffer.from(text));
      expect(run, text).toThrow(/signed notification/);
      expect(run, text).not.toThrow(InvalidSignature);
    }
  });

  it('a blank key or secret does not start', () => {
    expect(() => withSecrets([])).toThrow(/STRIPE_WEBHOOK_SECRETS/);
    expect(() => withSecrets(['whsec_standin', ' '])).toThrow(/STRIPE_WEBHOOK_SECRETS/);
    expect(() => withSecrets(['whsec_standin'], ' ')).toThrow(/STRIPE_SECRET_KEY/);
  });
});

describe('facts', () => {
  it.each([
    ['payment_intent.succeeded', 'automatic', {}, { status: 'succeeded', amount_captured_minor: 1000n }],
    ['payment_intent.amount_capturable_updated', 'manual', {}, { status: 'authorized', amount_captured_minor: 0n }],
    ['payment_intent.processing', 'automatic', { status: 'processing' }, { status: 'processing' }],
    ['payment_intent.canceled', 'manual', { status: 'canceled' }, { status: 'canceled', closed: true }],
    [
      'payment_intent.canceled',
      'manual',
      { status: 'canceled', cancellation_reason: 'automatic' },
      { status: 'failed', closed: true, failure: { code: 'authorization_expired' } },
    ],
    [
      'payment_intent.payment_failed',
      'automatic',
      {
        status: 'requires_payment_method',
        last_payment_error: {
          type: 'card_error',
          code: 'card_declined',
          decline_code: 'insufficient_funds',
          message: 'No.',
        },
      },
      { status: 'failed', closed: false, failure: { code: 'insufficient_funds', message: 'No.' } },
    ],
    [
      'payment_intent.requires_action',
      'automatic',
      {
        status: 'requires_action',
        next_action: {
          type: 'redirect_to_url',
          redirect_to_url: { url: 'https://hooks.stripe.com/r', return_url: 'https://x' },
        },
      },
      { status: 'requires_action', next_action: { type: 'redirect_to_url', url: 'https://hooks.stripe.com/r' } },
    ],
  ] as const)('%s of a %s charge', async (type, capture, state, expected) => {
    const { reference, intent } = await charged(capture);
    const event = heard(type, { ...intent, ...state });
    expect(event.fact).toMatchObject({ type: 'charge', provider_payment_id: intent.id, currency: 'USD', ...expected });
    expect(event.charge_metadata).toEqual({ reference, installation_id: 'inst_1', external_payment_id: 'order-1' });
    expect(event.refund_metadata).toBeNull();
    expect(Math.abs(event.occurred_at.getTime() - Date.now())).toBeLessThan(60_000);
  });

  it('a voucher is to be fetched from its hosted page', async () => {
    const { intent } = await charged();
    const next_action = {
      type: 'oxxo_display_details',
      oxxo_display_details: { number: '1', hosted_voucher_url: 'https://payments.stripe.com/v' },
    };
    const event = heard('payment_intent.requires_action', { ...intent, status: 'requires_action', next_action });
    expect(event.fact).toMatchObject({
      next_action: { type: 'oxxo_display_details', url: 'https://payments.stripe.com/v' },
    });
  });

  it('an action that only Stripe.js can take has no address', async () => {
    const { intent } = await charged();
    const sdk = {
      type: 'three_d_secure_redirect',
      url: 'https://hooks.stripe.com/x',
      stripe_js: 'https://hooks.stripe.com/y',
    };
    const next_action = { type: 'use_stripe_sdk', use_stripe_sdk: sdk };
    const event = heard('payment_intent.requires_action', { ...intent, status: 'requires_action', next_action });
    expect(event.fact).toMatchObject({ status: 'requires_action', next_action: null });
  });

  it('charge.refunded tells totals, without the released part of a capture', async () => {
    const { reference, intent, charge } = await charged('manual');
    stripe.objects.captureIntent(intent.id, { amount_to_capture: '600' });
    stripe.objects.addRefund(charge, 100, {});
    const event = heard('charge.refunded', charge);
    expect(event.fact).toMatchObject({ status: 'succeeded', amount_captured_minor: 600n, amount_refunded_minor: 100n });
    expect(event.charge_metadata?.reference).toBe(reference);
  });

  it('charge.refunded of a cancelled authorization says nothing about money', async () => {
    const { intent, charge } = await charged('manual');
    stripe.objects.cancelIntent(intent.id, {});
    expect(charge).toMatchObject({ captured: false, refunded: true });
    expect(heard('charge.refunded', charge).fact).toBeNull();
  });

  it.each(['refund.created', 'refund.updated', 'refund.failed', 'charge.refund.updated'])(
    '%s of our refund',
    async (type) => {
      const { intent } = await charged();
      const metadata = chargeRequest(`refund-${type}`).metadata;
      const request = { provider_payment_id: intent.id, amount_minor: 400n, currency: 'USD', reason: null, metadata };
      const made = await provider.refund(request, { ...limit, provider_key: `refund-${type}` });
      const refund = stripe.objects.find(made.provider_refund_id);
      const event = heard(type, refund!);
      expect(event).toMatchObject({ fact: made, refund_metadata: metadata, charge_metadata: null });
      // It says itself whose it is: nothing has to be asked.
      const asked = stripe.requests.length;
      expect(await provider.completeEvent?.(event, limit)).toBe(event);
      expect(stripe.requests).toHaveLength(asked);
    },
  );
});

describe('refunds that we did not make', () => {
  it('one of the dashboard is completed with whose charge it is on', async () => {
    const { reference, intent, charge } = await charged();
    const event = heard('refund.created', stripe.objects.addRefund(charge, 300, {}));
    expect(event).toMatchObject({
      fact: { type: 'refund', amount_minor: 300n },
      charge_metadata: null,
      refund_metadata: null,
    });
    const complete = await provider.completeEvent?.(event, limit);
    expect(complete?.charge_metadata?.reference).toBe(reference);
    expect(complete?.fact).toMatchObject({ status: 'succeeded', amount_minor: 300n, provider_payment_id: intent.id });
  });

  it('the released remainder of a partial capture is no refund; a later refund of the same amount is one', async () => {
    const { intent, charge } = await charged('manual');
    stripe.objects.captureIntent(intent.id, { amount_to_capture: '600' });
    const [released] = stripe.objects.all('refund').filter((refund) => refund.charge === charge.id);
    expect((await provider.completeEvent?.(heard('refund.created', released!), limit))?.fact).toBeNull();
    const later = stripe.objects.addRefund(charge, 400, {}, Math.floor(Date.now() / 1000) + 60);
    expect((await provider.completeEvent?.(heard('refund.created', later), limit))?.fact).toMatchObject({
      amount_minor: 400n,
    });
  });

  it('the release of a cancelled authorization is no refund', async () => {
    const { intent, charge } = await charged('manual');
    stripe.objects.cancelIntent(intent.id, {});
    const [released] = stripe.objects.all('refund').filter((refund) => refund.charge === charge.id);
    expect((await provider.completeEvent?.(heard('refund.created', released!), limit))?.fact).toBeNull();
  });

  it('one that is of nobody’s charge here is acknowledged; an outage means "send it again"', async () => {
    const { charge } = await charged();
    const refund = stripe.objects.addRefund(charge, 100, {});
    const event = heard('refund.created', refund);
    stripe.next(`GET /v1/refunds/${refund.id}`, { commits: false, then: problem(500, { type: 'api_error' }) });
    expect(await providerErrorOf(provider.completeEvent!(event, limit))).toMatchObject({
      kind: 'unknown',
      reason: 'http_500',
    });
    const elsewhere = heard('refund.created', { ...refund, id: 're_elsewhere' });
    expect((await provider.completeEvent?.(elsewhere, limit))?.fact).toBeNull();
  });
});

describe('what changes nothing', () => {
  it('an event of the other mode, whichever way round', async () => {
    const { intent } = await charged();
    const nothing = { charge_metadata: null, refund_metadata: null, fact: null };
    expect(heard('payment_intent.succeeded', intent, { livemode: true })).toMatchObject(nothing);
    const { headers, body } = stripe.event('payment_intent.succeeded', intent);
    const live = withSecrets([stripe.webhook_secret], 'sk_live_x');
    expect(live.parseWebhook(headers, body)).toMatchObject(nothing);
    const restricted = withSecrets([stripe.webhook_secret], 'rk_live_x');
    expect(restricted.parseWebhook(headers, body)).toMatchObject(nothing);
  });

  it('payment_intent.created, whose snapshot is older than the confirmation, and types that we do not know', async () => {
    const { intent } = await charged();
    for (const type of ['payment_intent.created', 'charge.dispute.created', 'customer.created', 'something.new']) {
      expect(heard(type, intent).fact, type).toBeNull();
    }
  });

  it('a charge without our metadata is not ours', async () => {
    const { intent } = await charged();
    for (const metadata of [
      {},
      { reference: 'x' },
      null,
      { reference: 1, installation_id: [], external_payment_id: {} },
    ]) {
      expect(heard('payment_intent.succeeded', { ...intent, metadata } as Stored).charge_metadata).toBeNull();
    }
  });

  it('a thin event', () => {
    const payload = JSON.stringify({
      id: 'evt_thin',
      object: 'v2.core.event',
      type: 'v1.billing.meter.no_meter_found',
    });
    const headers = {
      'stripe-signature': Stripe.webhooks.generateTestHeaderString({ payload, secret: 'whsec_standin' }),
    };
    expect(provider.parseWebhook(headers, Buffer.from(payload))).toMatchObject({ event_id: 'evt_thin', fact: null });
  });
});

describe('other API versions', () => {
  it('reads an intent of before 2022-11-15, with its charges inside', async () => {
    const { intent, charge } = await charged('manual');
    stripe.objects.captureIntent(intent.id, { amount_to_capture: '600' });
    stripe.objects.addRefund(charge, 50, {});
    const old = { ...intent, latest_charge: undefined, charges: { object: 'list', data: [{ ...charge }] } } as Stored;
    expect(heard('payment_intent.succeeded', old, { api_version: '2020-08-27' }).fact).toMatchObject({
      amount_captured_minor: 600n,
      amount_refunded_minor: 50n,
    });
  });

  it('an event that does not say its mode is read', async () => {
    const { intent } = await charged();
    expect(heard('payment_intent.succeeded', intent, { livemode: undefined }).fact).not.toBeNull();
  });

  it('never breaks on what it can’t read, whatever is missing or of another kind', async () => {
    const { intent, charge } = await charged();
    const refund = stripe.objects.addRefund(charge, 10, {});
    const strange = [undefined, null, 'text', -1, 1.5, 1e20, true, [], {}, [{}], { data: 'x' }];
    const objects: [string, Stored][] = [
      ['payment_intent.succeeded', intent],
      ['charge.refunded', charge],
      ['refund.updated', refund],
    ];
    for (const [type, object] of objects) {
      for (const field of Object.keys(object)) {
        for (const value of strange) heard(type, { ...object, [field]: value });
      }
      for (const value of strange) heard(type, value as unknown as Stored);
      for (const value of strange)
        heard(type, object, { data: value, created: value, livemode: value, api_version: value });
    }
  });
});
