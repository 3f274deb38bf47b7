import { randomUUID } from 'node:crypto';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { newCharge, TestSystem } from '../support/app.js';
import { problem, type Stored } from '../support/stripe-objects.js';
import { startStripeStandin, type StripeStandin } from '../support/stripe-standin.js';

/** The whole service over the stand-in of Stripe: what neither side's own tests can show. */
describe('the service on Stripe', () => {
  let stripe: StripeStandin;
  let system: TestSystem;

  beforeAll(async () => {
    stripe = await startStripeStandin();
    system = await TestSystem.start({
      env: {
        PROVIDERS: 'stripe',
        STRIPE_SECRET_KEY: stripe.secret_key,
        STRIPE_API_BASE: stripe.url,
        STRIPE_WEBHOOK_SECRETS: stripe.webhook_secret,
      },
    });
  });
  afterAll(async () => {
    await system.close();
    await stripe.close();
  });

  const cardCharge = (more: Record<string, unknown> = {}) =>
    newCharge({ currency: 'USD', payment_method: 'pm_card_visa', ...more });
  const intentsOf = (external_payment_id: string): Stored[] =>
    stripe.objects
      .all('payment_intent')
      .filter((intent) => intent.metadata.external_payment_id === external_payment_id);
  const post = (path: string, body: Record<string, unknown> = {}) =>
    request(system.first.url)
      .post(path)
      .set('authorization', `Bearer ${system.api_key}`)
      .set('idempotency-key', randomUUID())
      .send(body);
  const get = (path: string) => request(system.first.url).get(path).set('authorization', `Bearer ${system.api_key}`);
  const notify = (type: string, object: Stored, overrides: Record<string, unknown> = {}) => {
    const { body, headers } = stripe.event(type, object, overrides);
    return request(system.first.url)
      .post('/webhooks/stripe')
      .set('content-type', 'application/json')
      .set(headers)
      .send(body.toString());
  };

  it('charges once, whatever happens to the answer', async () => {
    for (const then of ['reset', problem(429, { type: 'invalid_request_error', code: 'lock_timeout' })] as const) {
      const body = cardCharge();
      stripe.next('POST /v1/payment_intents', { commits: then === 'reset', then });
      const answer = await system.charge(body);
      expect([answer.status, answer.body.status]).toEqual([201, 'succeeded']);
      expect(intentsOf(body.external_payment_id)).toHaveLength(1);
    }
  });

  it('a 500 that Stripe replays stays open until Search shows what happened', async () => {
    const body = cardCharge();
    const key = randomUUID();
    stripe.next('POST /v1/payment_intents', {
      commits: true,
      then: problem(500, { type: 'api_error', message: 'oops' }),
    });
    const first = await system.charge(body, { key });
    expect([first.status, first.body.status]).toEqual([202, 'processing']);
    stripe.catchUpSearch();
    const jobs = system.first.startJobs();
    const answer = await system.chargeUntilFinal(body, { key });
    await jobs.stop();
    expect([answer.status, answer.body.status]).toEqual([201, 'succeeded']);
    expect(intentsOf(body.external_payment_id)).toHaveLength(1);
  });

  it.each([
    ['was cancelled with it', undefined],
    ['could not be cancelled then', problem(500, { type: 'api_error', message: 'oops' })],
  ])('a decline whose intent %s is paid again, and only once', async (_, then) => {
    const body = cardCharge({ payment_method: 'pm_card_visa_chargeDeclined' });
    if (then) stripe.next('POST /v1/payment_intents/pi_', { commits: false, then });
    const declined = await system.charge(body);
    expect([declined.status, declined.body.status, declined.body.failure.code]).toEqual([
      201,
      'failed',
      'card_declined',
    ]);
    const paid = await system.charge({ ...body, payment_method: 'pm_card_visa' });
    expect([paid.status, paid.body.status, paid.body.id]).toEqual([201, 'succeeded', declined.body.id]);
    expect(intentsOf(body.external_payment_id).map(({ status }) => status)).toEqual(['canceled', 'succeeded']);
  });

  it('an action of the customer is told, and its end comes by webhook', async () => {
    const body = cardCharge({
      payment_method: 'pm_card_authenticationRequired',
      return_url: 'https://shop.example/back',
    });
    const answer = await system.charge(body);
    expect(answer.body).toMatchObject({ status: 'requires_action', next_action: { type: 'redirect_to_url' } });
    const [intent] = intentsOf(body.external_payment_id);
    stripe.objects.completeAction(intent!.id, true);
    expect((await notify('payment_intent.succeeded', intent!)).status).toBe(200);
    expect((await system.getPayment(answer.body.id)).body).toMatchObject({
      status: 'succeeded',
      amount_captured: '10.00',
    });
  });

  it('a part is captured: what Stripe calls refunded of the rest is none, what the dashboard refunds is one', async () => {
    const body = cardCharge({ capture: 'manual' });
    const held = await system.charge(body);
    const { id } = held.body as { id: string };
    expect((await post(`/payments/${id}/capture`, { amount: '6.00' })).body.status).toBe('succeeded');
    const [intent] = intentsOf(body.external_payment_id);
    const charge = stripe.objects.chargeOf(intent!.id);
    const [released] = stripe.objects.all('refund').filter((refund) => refund.charge === charge.id);
    expect((await notify('refund.created', released!)).status).toBe(200);
    expect((await notify('charge.refunded', charge)).status).toBe(200);
    expect((await system.getPayment(id)).body).toMatchObject({ amount_captured: '6.00', amount_refunded: '0.00' });

    const later = Math.floor(Date.now() / 1000) + 60;
    expect((await notify('refund.created', stripe.objects.addRefund(charge, 150, {}, later))).status).toBe(200);
    expect((await system.getPayment(id)).body).toMatchObject({ amount_refunded: '1.50' });
    expect((await get(`/payments/${id}/refunds`)).body.data).toMatchObject([{ amount: '1.50', status: 'succeeded' }]);
    expect((await post(`/payments/${id}/refunds`, { amount: '4.51' })).body.code).toBe('amount_exceeds_remaining');
    const rest = await post(`/payments/${id}/refunds`, { amount: '4.50', reason: 'requested_by_customer' });
    expect([rest.status, rest.body.status]).toEqual([201, 'succeeded']);
  });

  it('an event that can’t be completed now is not taken, and applied when it comes again', async () => {
    const body = cardCharge();
    const { id } = (await system.charge(body)).body as { id: string };
    const refund = stripe.objects.addRefund(
      stripe.objects.chargeOf(intentsOf(body.external_payment_id)[0]!.id),
      200,
      {},
    );
    stripe.next(`GET /v1/refunds/${refund.id}`, { commits: false, then: 'reset' });
    expect((await notify('refund.created', refund)).status).toBe(503);
    expect((await notify('refund.created', refund)).status).toBe(200);
    await vi.waitFor(async () => expect((await system.getPayment(id)).body.amount_refunded).toBe('2.00'));
  });

  it('refuses in clear words, and nothing exists at Stripe', async () => {
    for (const [more, code] of [
      [{ amount: '0.49' }, 'amount_too_small'],
      [{ payment_method: 'pm_nonsense' }, 'payment_method_invalid'],
      [{ payment_method: undefined }, 'payment_method_invalid'],
      [{ currency: 'LYD', amount: '10.000' }, 'currency_not_supported'],
      [{ currency: 'KWD', amount: '5.124' }, 'provider_rejected'],
    ] as const) {
      const body = cardCharge(more);
      const answer = await system.charge(body);
      expect([answer.status, answer.body.status, answer.body.failure?.code]).toEqual([201, 'failed', code]);
      expect(intentsOf(body.external_payment_id)).toHaveLength(0);
    }
  });

  it('a wrong signature is refused; an event of the other mode is acknowledged and changes nothing', async () => {
    const body = cardCharge({
      payment_method: 'pm_card_authenticationRequired',
      return_url: 'https://shop.example/back',
    });
    const { id } = (await system.charge(body)).body as { id: string };
    const [intent] = intentsOf(body.external_payment_id);
    stripe.objects.completeAction(intent!.id, true);
    const { headers } = stripe.event('payment_intent.succeeded', intent!);
    const wrong = request(system.first.url)
      .post('/webhooks/stripe')
      .set('content-type', 'application/json')
      .set(headers);
    expect((await wrong.send('{}')).status).toBe(401);
    expect((await notify('payment_intent.succeeded', intent!, { livemode: true })).status).toBe(200);
    expect((await system.getPayment(id)).body.status).toBe('requires_action');
    expect((await notify('payment_intent.succeeded', intent!)).status).toBe(200);
    expect((await system.getPayment(id)).body.status).toBe('succeeded');
  });

  it('neither the key nor a secret is in a log line', () => {
    const lines = JSON.stringify(system.first.log);
    expect(lines).not.toContain(stripe.secret_key);
    expect(lines).not.toContain(stripe.webhook_secret);
    expect(lines).not.toMatch(/_secret_[0-9a-f]/);
  });
});
