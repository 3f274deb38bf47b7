import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { ChargeRequest, PaymentProvider } from '../../src/providers/provider.js';
import { freePort } from '../../scripts/free-port.js';
import { createStripeProvider } from '../../src/providers/stripe/index.js';
import { problem, type Answer } from '../support/stripe-objects.js';
import { startStripeStandin, type StripeStandin } from '../support/stripe-standin.js';
import { chargeRequest, providerErrorOf, target } from '../support/stripe-requests.js';

let stripe: StripeStandin;
let provider: PaymentProvider;
let keys = 0;

/** A provider key that nobody has used. */
function call(timeout_ms = 5000): { provider_key: string; timeout_ms: number } {
  keys += 1;
  return { provider_key: keys.toString(16).padStart(64, '0'), timeout_ms };
}

function posts(path: string): StripeStandin['requests'] {
  return stripe.requests.filter((request) => request.method === 'POST' && request.path.startsWith(path));
}

async function authorized(amount_minor = 1000n): Promise<string> {
  const options = call();
  const fact = await provider.charge(chargeRequest(options.provider_key, { amount_minor, capture: 'manual' }), options);
  expect(fact.status).toBe('authorized');
  return fact.provider_payment_id;
}

beforeAll(async () => {
  stripe = await startStripeStandin();
});
beforeEach(() => {
  provider = providerAt(stripe.url);
});
afterAll(() => stripe.close());

function providerAt(api_base: string): PaymentProvider {
  return createStripeProvider({ secret_key: stripe.secret_key, api_base, webhook_secrets: [stripe.webhook_secret] });
}

describe('charge', () => {
  it('creates and confirms in one request, under our key, with our metadata', async () => {
    const options = call();
    const fact = await provider.charge(chargeRequest(options.provider_key), options);
    expect(fact).toMatchObject({
      type: 'charge',
      status: 'succeeded',
      amount_minor: 1000n,
      currency: 'USD',
      amount_captured_minor: 1000n,
      amount_refunded_minor: 0n,
      failure: null,
      next_action: null,
    });
    const [request] = posts('/v1/payment_intents').slice(-1);
    expect(request?.idempotency_key).toBe(options.provider_key);
    expect(request?.fields).toEqual({
      amount: '1000',
      currency: 'usd',
      confirm: 'true',
      payment_method: 'pm_card_visa',
      capture_method: 'automatic',
      'automatic_payment_methods[enabled]': 'true',
      'automatic_payment_methods[allow_redirects]': 'never',
      error_on_requires_action: 'true',
      'metadata[reference]': options.provider_key,
      'metadata[installation_id]': 'inst_1',
      'metadata[external_payment_id]': 'order-1',
    });
  });

  it('repeated under its key, is the same charge', async () => {
    const options = call();
    const first = await provider.charge(chargeRequest(options.provider_key), options);
    const before = stripe.objects.all('payment_intent').length;
    expect(await provider.charge(chargeRequest(options.provider_key), options)).toEqual(first);
    expect(stripe.objects.all('payment_intent')).toHaveLength(before);
  });

  it('authorizes only, with manual capture', async () => {
    const options = call();
    const fact = await provider.charge(chargeRequest(options.provider_key, { capture: 'manual' }), options);
    expect(fact).toMatchObject({ status: 'authorized', amount_minor: 1000n, amount_captured_minor: 0n });
  });

  it('asks for the customer’s action, with the address to send them to', async () => {
    const options = call();
    const request = chargeRequest(options.provider_key, {
      payment_method: 'pm_card_authenticationRequired',
      return_url: 'https://shop.example/back',
    });
    const fact = await provider.charge(request, options);
    expect(fact.status).toBe('requires_action');
    expect(fact.next_action).toEqual({
      type: 'redirect_to_url',
      url: `https://hooks.stripe.com/redirect/${fact.provider_payment_id}`,
    });
    stripe.objects.completeAction(fact.provider_payment_id, true);
    expect(await provider.retrieve(target({ id: fact.provider_payment_id }), { timeout_ms: 5000 })).toMatchObject({
      status: 'succeeded',
    });
  });

  it('without a return_url, a payment that needs an action is declined and not left hanging', async () => {
    const options = call();
    const request = chargeRequest(options.provider_key, { payment_method: 'pm_card_authenticationRequired' });
    expect(await provider.charge(request, options)).toMatchObject({
      status: 'failed',
      failure: { code: 'authentication_failed' },
      closed: true,
    });
  });

  it.each([
    ['pm_card_visa_chargeDeclined', 'card_declined'],
    ['pm_card_visa_chargeDeclinedInsufficientFunds', 'insufficient_funds'],
    ['pm_card_visa_chargeDeclinedLostCard', 'card_declined'],
    ['pm_card_visa_chargeDeclinedStolenCard', 'card_declined'],
    ['pm_card_visa_chargeDeclinedVelocityLimitExceeded', 'limit_exceeded'],
    ['pm_card_visa_chargeDeclinedFraudulent', 'fraud_suspected'],
    ['pm_card_chargeDeclinedExpiredCard', 'expired_card'],
    ['pm_card_chargeDeclinedIncorrectCvc', 'incorrect_cvc'],
    ['pm_card_chargeDeclinedProcessingError', 'processing_error'],
  ])('%s is an outcome, %s, and the intent is cancelled at once', async (payment_method, code) => {
    const options = call();
    const fact = await provider.charge(chargeRequest(options.provider_key, { payment_method }), options);
    expect(fact).toMatchObject({ status: 'failed', closed: true, failure: { code } });
    expect(stripe.objects.find(fact.provider_payment_id)).toMatchObject({ status: 'canceled' });
    // Asked later, and repeated under its key, it is the same decline.
    expect(await provider.retrieve(target({ id: fact.provider_payment_id }), { timeout_ms: 5000 })).toMatchObject({
      status: 'failed',
      closed: true,
      failure: { code },
    });
    expect(await provider.charge(chargeRequest(options.provider_key, { payment_method }), options)).toEqual(fact);
  });

  it.each<[string, Answer | 'hang' | 'reset']>([
    ['a 500', problem(500, { type: 'api_error' })],
    ['a cut connection', 'reset'],
    ['silence', 'hang'],
  ])('a decline whose cancel meets %s is not known to be closed', async (_, then) => {
    const options = call(400);
    stripe.next('POST /v1/payment_intents/pi_', { commits: false, then });
    const request = chargeRequest(options.provider_key, { payment_method: 'pm_card_visa_chargeDeclined' });
    const fact = await provider.charge(request, options);
    expect(fact).toMatchObject({ status: 'failed', closed: false, failure: { code: 'card_declined' } });
    const closing = { provider_payment_id: fact.provider_payment_id, metadata: request.metadata };
    expect(await provider.cancel(closing, call())).toMatchObject({ status: 'canceled', closed: true });
  });

  it.each([
    [
      'was cancelled already',
      { status: 'canceled', cancellation_reason: 'abandoned' },
      { status: 'failed', closed: true },
    ],
    ['was paid meanwhile', { status: 'succeeded', amount_received: 1000 }, { status: 'succeeded', closed: false }],
    ['is being processed', { status: 'processing' }, { status: 'processing', closed: false }],
  ])('a decline whose intent %s is told as it is', async (_, state, expected) => {
    const options = call();
    const error = { type: 'card_error', code: 'card_declined', message: 'No.' };
    const intent = { id: 'pi_1', object: 'payment_intent', amount: 1000, currency: 'usd', last_payment_error: error };
    stripe.next('POST /v1/payment_intents/pi_', {
      commits: false,
      then: problem(400, {
        type: 'invalid_request_error',
        code: 'payment_intent_unexpected_state',
        payment_intent: { ...intent, ...state },
      }),
    });
    const request = chargeRequest(options.provider_key, { payment_method: 'pm_card_visa_chargeDeclined' });
    expect(await provider.charge(request, options)).toMatchObject(expected);
  });

  it('a refusal that left an intent behind is an outcome, and the intent is cancelled', async () => {
    const id = await authorized();
    const intent = stripe.objects.find(id);
    Object.assign(intent ?? {}, { status: 'requires_confirmation' });
    const options = call();
    stripe.next('POST /v1/payment_intents', {
      commits: false,
      then: problem(400, {
        type: 'invalid_request_error',
        code: 'payment_intent_incompatible_payment_method',
        message: 'The payment method can’t be used here.',
        payment_intent: intent,
      }),
    });
    expect(await provider.charge(chargeRequest(options.provider_key), options)).toMatchObject({
      status: 'failed',
      provider_payment_id: id,
      failure: { code: 'payment_method_invalid' },
      closed: true,
    });
    expect(intent).toMatchObject({ status: 'canceled', cancellation_reason: 'abandoned' });
  });

  it.each<[string, Partial<ChargeRequest>, string]>([
    ['no payment method', { payment_method: null }, 'payment_method_invalid'],
    ['an unknown payment method', { payment_method: 'pm_nonsense' }, 'payment_method_invalid'],
    ['an amount below the minimum', { amount_minor: 49n }, 'amount_too_small'],
    ['a currency that Stripe does not have', { currency: 'IRR' }, 'currency_not_supported'],
    ['a currency whose digits are not known', { currency: 'LYD' }, 'currency_not_supported'],
    ['more digits than Stripe takes', { currency: 'KWD', amount_minor: 5124n }, 'provider_rejected'],
  ])('%s is refused with a clear code, and nothing exists', async (_, differs, code) => {
    const before = stripe.objects.all('payment_intent').length;
    const options = call();
    const error = await providerErrorOf(provider.charge(chargeRequest(options.provider_key, differs), options));
    expect(error).toMatchObject({ kind: 'refused', failure: { code } });
    expect(stripe.objects.all('payment_intent')).toHaveLength(before);
  });
});

describe('what an error means', () => {
  const errors: [string, Answer, string, string][] = [
    [
      '401',
      problem(401, { type: 'invalid_request_error', message: 'Invalid API Key provided: sk_test_****' }),
      'unknown',
      'not_permitted',
    ],
    ['403', problem(403, { type: 'invalid_request_error' }), 'unknown', 'not_permitted'],
    ['429', problem(429, { type: 'invalid_request_error', code: 'rate_limit' }), 'unknown', 'rate_limited'],
    [
      '429 of a locked object',
      problem(429, { type: 'invalid_request_error', code: 'lock_timeout' }),
      'unknown',
      'locked',
    ],
    ['409', problem(409, { type: 'idempotency_error', code: 'idempotency_key_in_use' }), 'unknown', 'key_in_use'],
    ['409 of another kind', problem(409, { type: 'invalid_request_error' }), 'unknown', 'key_in_use'],
    ['500', problem(500, { type: 'api_error', message: 'oops' }), 'unknown', 'http_500'],
    ['503', problem(503, { type: 'api_error', message: 'oops' }), 'unknown', 'http_503'],
    [
      '400',
      problem(400, {
        type: 'invalid_request_error',
        code: 'parameter_unknown',
        param: 'x',
        message: 'Received unknown parameter: x',
      }),
      'refused',
      'parameter_unknown',
    ],
    [
      '402 without an intent',
      problem(402, { type: 'card_error', code: 'card_declined', message: 'Your card was declined.' }),
      'refused',
      'card_declined',
    ],
  ];
  it.each(errors)('%s', async (_, then, kind, reason) => {
    const options = call();
    stripe.next('POST /v1/payment_intents', { commits: false, then });
    const sent = posts('/v1/payment_intents').length;
    const error = await providerErrorOf(provider.charge(chargeRequest(options.provider_key), options));
    expect(error).toMatchObject({ kind, reason });
    expect(posts('/v1/payment_intents')).toHaveLength(sent + 1);
  });

  it('a 500 that Stripe replays under the key stays unknown, although the money moved', async () => {
    const options = call();
    stripe.next('POST /v1/payment_intents', {
      commits: true,
      then: problem(500, { type: 'api_error', message: 'oops' }),
    });
    for (let attempt = 0; attempt < 2; attempt += 1) {
      const error = await providerErrorOf(provider.charge(chargeRequest(options.provider_key), options));
      expect(error).toMatchObject({ kind: 'unknown', reason: 'http_500' });
    }
    stripe.catchUpSearch();
    expect(await provider.retrieve(target({ reference: options.provider_key }), { timeout_ms: 5000 })).toMatchObject({
      status: 'succeeded',
    });
  });

  it('other parameters under a used key are unknown, never a refusal of the first', async () => {
    const options = call();
    await provider.charge(chargeRequest(options.provider_key), options);
    const error = await providerErrorOf(
      provider.charge(chargeRequest(options.provider_key, { amount_minor: 2000n }), options),
    );
    expect(error).toMatchObject({ kind: 'unknown', reason: 'key_mismatch' });
  });

  it.each<[string, 'hang' | 'stall', boolean]>([
    ['silence before the answer', 'hang', true],
    ['silence in the middle of the answer', 'stall', true],
  ])('%s ends at the time limit, as unknown; the same request then finds the charge', async (_, then, commits) => {
    const options = call(300);
    stripe.next('POST /v1/payment_intents', { commits, then });
    const started = performance.now();
    const error = await providerErrorOf(provider.charge(chargeRequest(options.provider_key), options));
    expect(error).toMatchObject({ kind: 'unknown', reason: 'timeout' });
    expect(performance.now() - started).toBeLessThan(2000);
    expect(await provider.charge(chargeRequest(options.provider_key), options)).toMatchObject({ status: 'succeeded' });
  });

  it('a cut connection is unknown, and the SDK does not repeat the request behind our back', async () => {
    const options = call();
    stripe.next('POST /v1/payment_intents', { commits: true, then: 'reset' });
    const error = await providerErrorOf(provider.charge(chargeRequest(options.provider_key), options));
    expect(error).toMatchObject({ kind: 'unknown', reason: 'connection_reset' });
    expect(posts('/v1/payment_intents').filter((r) => r.idempotency_key === options.provider_key)).toHaveLength(1);
  });

  it.each<[number, string, string]>([
    [502, '<html>Bad gateway</html>', 'http_502'],
    [429, 'slow down', 'rate_limited'],
    [403, '<html>no</html>', 'not_permitted'],
    [404, '<html>no</html>', 'unreadable_answer'],
    [404, '{"error": "not found"}', 'http_404'],
    [404, '{"error": {"type": "gateway", "message": "no route"}}', 'http_404'],
    [404, '{"message": "no route"}', 'unreadable_answer'],
    [200, 'null', 'unreadable_answer'],
    [200, '', 'unreadable_answer'],
    [200, '{"id": "pi_1", "object": "payment_intent", "status": "succeeded", "currency": "usd"}', 'unreadable_answer'],
    [200, '[]', 'unreadable_answer'],
    [200, `"${'x'.repeat(5_000_000)}"`, 'answer_too_long'],
  ])('%i %.50s of something in between is unknown: %s', async (status, text, reason) => {
    const options = call();
    stripe.next('POST /v1/payment_intents', { commits: false, then: { status, text } });
    const error = await providerErrorOf(provider.charge(chargeRequest(options.provider_key), options));
    expect(error).toMatchObject({ kind: 'unknown', reason, failure: null });
  });

  it('a redirect is unknown, and followed nowhere', async () => {
    const options = call();
    stripe.next('POST /v1/payment_intents', { commits: false, then: 'redirect' });
    const error = await providerErrorOf(provider.charge(chargeRequest(options.provider_key), options));
    expect(error).toMatchObject({ kind: 'unknown' });
    expect(posts('/elsewhere')).toHaveLength(0);
  });

  it('a connection whose TLS never stood was not sent', async () => {
    const options = call();
    const misled = providerAt(stripe.url.replace('http:', 'https:'));
    const error = await providerErrorOf(misled.charge(chargeRequest(options.provider_key), options));
    expect(error.kind).toBe('not_sent');
  });

  it('an address with a path does not start, since the SDK would drop the path', () => {
    expect(() => providerAt(`${stripe.url}/stripe`)).toThrow(/STRIPE_API_BASE/);
  });

  it('a refused connection was surely not sent', async () => {
    const port = await freePort();
    const options = call();
    const error = await providerErrorOf(
      providerAt(`http://127.0.0.1:${port}`).charge(chargeRequest(options.provider_key), options),
    );
    expect(error).toMatchObject({ kind: 'not_sent', reason: 'connection_refused' });
  });

  it('no key, secret or client secret is in an error, whatever Stripe quotes', async () => {
    const message = 'sk_live_51abc rk_test_9 whsec_xyz pi_3abc_secret_9def are not for you';
    stripe.next('POST /v1/payment_intents', {
      commits: false,
      then: problem(400, { type: 'invalid_request_error', message }),
    });
    const options = call();
    const error = await providerErrorOf(provider.charge(chargeRequest(options.provider_key), options));
    const shown = JSON.stringify([error.message, error.failure, error.cause ?? null]);
    expect(shown).toContain('are not for you');
    expect(shown).not.toMatch(/sk_live|rk_test|whsec|_secret_/);
  });
});

describe('capture, cancel, refund', () => {
  it('captures a part; what is released is no refund', async () => {
    const id = await authorized();
    const options = call();
    const request = {
      provider_payment_id: id,
      amount_minor: 600n,
      currency: 'USD',
      metadata: chargeRequest('x').metadata,
    };
    const fact = await provider.capture(request, options);
    expect(fact).toMatchObject({
      status: 'succeeded',
      amount_minor: 1000n,
      amount_captured_minor: 600n,
      amount_refunded_minor: 0n,
    });
    expect(await provider.capture(request, options)).toEqual(fact);
    const asked = await provider.retrieve(target({ id, kind: 'capture' }), { timeout_ms: 5000 });
    expect(asked).toMatchObject({ amount_captured_minor: 600n, amount_refunded_minor: 0n });
    // The charge keeps the metadata that names it.
    expect(stripe.objects.find(id)?.metadata.reference).not.toBe('x');
  });

  it('a real refund after a partial capture is counted without the released part', async () => {
    const id = await authorized();
    const metadata = chargeRequest('x').metadata;
    await provider.capture({ provider_payment_id: id, amount_minor: 600n, currency: 'USD', metadata }, call());
    const refund = { provider_payment_id: id, amount_minor: 150n, currency: 'USD', reason: null, metadata };
    expect(await provider.refund(refund, call())).toMatchObject({ status: 'succeeded', amount_minor: 150n });
    expect(await provider.retrieve(target({ id }), { timeout_ms: 5000 })).toMatchObject({
      amount_captured_minor: 600n,
      amount_refunded_minor: 150n,
    });
  });

  it('a capture of more than is authorized is refused', async () => {
    const id = await authorized();
    const request = {
      provider_payment_id: id,
      amount_minor: 1001n,
      currency: 'USD',
      metadata: chargeRequest('x').metadata,
    };
    expect(await providerErrorOf(provider.capture(request, call()))).toMatchObject({
      kind: 'refused',
      failure: { code: 'amount_too_large' },
    });
  });

  it('a capture of what was captured or cancelled meanwhile tells the charge as it is', async () => {
    const metadata = chargeRequest('x').metadata;
    const captured = await authorized();
    stripe.objects.captureIntent(captured, { amount_to_capture: '400' });
    expect(
      await provider.capture({ provider_payment_id: captured, amount_minor: 600n, currency: 'USD', metadata }, call()),
    ).toMatchObject({ status: 'succeeded', amount_captured_minor: 400n });
    const canceled = await authorized();
    stripe.objects.cancelIntent(canceled, {});
    expect(
      await provider.capture({ provider_payment_id: canceled, amount_minor: 600n, currency: 'USD', metadata }, call()),
    ).toMatchObject({ status: 'canceled', closed: true });
  });

  it('a refusal that does not say what the charge is leads to the question; without an answer it stays unknown', async () => {
    const id = await authorized();
    stripe.objects.captureIntent(id, {});
    const request = {
      provider_payment_id: id,
      amount_minor: 1000n,
      currency: 'USD',
      metadata: chargeRequest('x').metadata,
    };
    const then = problem(400, { type: 'invalid_request_error', code: 'charge_already_captured', message: 'Already.' });
    stripe.next(`POST /v1/payment_intents/${id}/capture`, { commits: false, then });
    expect(await provider.capture(request, call())).toMatchObject({
      status: 'succeeded',
      amount_captured_minor: 1000n,
    });
    stripe.next(`POST /v1/payment_intents/${id}/capture`, { commits: false, then });
    stripe.next(`GET /v1/payment_intents/${id}`, { commits: false, then: 'reset' });
    expect(await providerErrorOf(provider.capture(request, call()))).toMatchObject({
      kind: 'unknown',
      reason: 'state_unknown',
    });
  });

  it('cancels an authorization; again is the same; a succeeded charge is told as it is', async () => {
    const metadata = chargeRequest('x').metadata;
    const id = await authorized();
    expect(await provider.cancel({ provider_payment_id: id, metadata }, call())).toMatchObject({
      status: 'canceled',
      closed: true,
    });
    expect(await provider.cancel({ provider_payment_id: id, metadata }, call())).toMatchObject({ status: 'canceled' });
    const options = call();
    const paid = await provider.charge(chargeRequest(options.provider_key), options);
    expect(await provider.cancel({ provider_payment_id: paid.provider_payment_id, metadata }, call())).toMatchObject({
      status: 'succeeded',
      amount_captured_minor: 1000n,
    });
  });

  it('a cancel while Stripe is processing is refused, and the charge is not called anything', async () => {
    const options = call();
    const paid = await provider.charge(chargeRequest(options.provider_key), options);
    Object.assign(stripe.objects.find(paid.provider_payment_id) ?? {}, { status: 'processing' });
    const request = { provider_payment_id: paid.provider_payment_id, metadata: chargeRequest('x').metadata };
    expect(await providerErrorOf(provider.cancel(request, call()))).toMatchObject({ kind: 'refused' });
  });

  it('an authorization that Stripe let expire has failed, for good', async () => {
    const id = await authorized();
    stripe.objects.cancelIntent(id, { cancellation_reason: 'automatic' });
    expect(await provider.retrieve(target({ id }), { timeout_ms: 5000 })).toMatchObject({
      status: 'failed',
      closed: true,
      failure: { code: 'authorization_expired' },
    });
  });

  it('refunds once under its key, passes Stripe’s own reasons and keeps others as metadata', async () => {
    const options = call();
    const paid = await provider.charge(chargeRequest(options.provider_key), options);
    const refund = {
      provider_payment_id: paid.provider_payment_id,
      amount_minor: 400n,
      currency: 'USD',
      reason: 'duplicate',
      metadata: chargeRequest('refund-1').metadata,
    };
    const key = call();
    const fact = await provider.refund(refund, key);
    expect(fact).toMatchObject({ type: 'refund', status: 'succeeded', amount_minor: 400n, currency: 'USD' });
    expect(fact.provider_payment_id).toBe(paid.provider_payment_id);
    expect(await provider.refund(refund, key)).toEqual(fact);
    await provider.refund({ ...refund, reason: 'broken on arrival' }, call());
    const sent = posts('/v1/refunds')
      .slice(-3)
      .map(({ fields }) => [fields.reason, fields['metadata[reason]']]);
    expect(sent).toEqual([
      ['duplicate', undefined],
      ['duplicate', undefined],
      [undefined, 'broken on arrival'],
    ]);
    expect(await providerErrorOf(provider.refund({ ...refund, amount_minor: 300n }, call()))).toMatchObject({
      kind: 'refused',
    });
  });
});
