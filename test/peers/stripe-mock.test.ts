import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { STRIPE_MOCK } from '../../scripts/peers/peers.js';
import type { PaymentProvider } from '../../src/providers/provider.js';
import { createStripeProvider } from '../../src/providers/stripe/index.js';
import { hasPeer, type RunningPeer, startStripeMock } from '../support/stripe-peers.js';
import { chargeRequest, target } from '../support/stripe-requests.js';

/**
 * Stripe's own mock answers 400 to a parameter that its OpenAPI description does not have or that is of another type,
 * and 404 to a path that does not exist. Its answers are fixtures: what they say of the money means nothing here, that
 * they can be read does.
 */
describe.skipIf(!hasPeer(STRIPE_MOCK))('every request that we send, by Stripe’s OpenAPI description', () => {
  let mock: RunningPeer;
  let provider: PaymentProvider;
  const call = { provider_key: 'a'.repeat(64), timeout_ms: 10_000 };
  const { metadata } = chargeRequest(call.provider_key);
  const on = { provider_payment_id: 'pi_1', currency: 'USD', metadata };

  beforeAll(async () => {
    mock = await startStripeMock();
    provider = createStripeProvider({
      secret_key: 'sk_test_123',
      api_base: mock.url,
      webhook_secrets: ['whsec_mock'],
    });
  });
  afterAll(() => mock.close());

  it.each<[string, () => Promise<unknown> | undefined]>([
    ['charge', () => provider.charge(chargeRequest(call.provider_key), call)],
    ['charge to authorize', () => provider.charge(chargeRequest(call.provider_key, { capture: 'manual' }), call)],
    [
      'charge with a return',
      () =>
        provider.charge(chargeRequest(call.provider_key, { return_url: 'https://shop.example/back?a=1&b=2' }), call),
    ],
    ['charge in yen', () => provider.charge(chargeRequest(call.provider_key, { currency: 'JPY' }), call)],
    ['capture', () => provider.capture({ ...on, amount_minor: 600n }, call)],
    ['cancel', () => provider.cancel(on, call)],
    ['refund', () => provider.refund({ ...on, amount_minor: 600n, reason: null }, call)],
    ['refund with Stripe’s reason', () => provider.refund({ ...on, amount_minor: 600n, reason: 'duplicate' }, call)],
    ['refund with ours', () => provider.refund({ ...on, amount_minor: 600n, reason: 'broken [on] arrival' }, call)],
    ['look-up by id', () => provider.retrieve(target({ id: 'pi_1' }), call)],
    ['look-up by reference', () => provider.retrieve(target({ reference: call.provider_key }), call)],
    ['look-up of a refund', () => provider.retrieve(target({ kind: 'refund', id: 'pi_1', refund_id: 're_1' }), call)],
    ['look-up of a refund by reference', () => provider.retrieve(target({ kind: 'refund', id: 'pi_1' }), call)],
    [
      'look-up of whose a refund is',
      () =>
        provider.completeEvent?.(
          {
            event_id: 'evt_1',
            type: 'refund.created',
            occurred_at: new Date(),
            charge_metadata: null,
            refund_metadata: null,
            fact: {
              type: 'refund',
              status: 'succeeded',
              provider_refund_id: 're_1',
              provider_payment_id: 'pi_1',
              amount_minor: 1n,
              currency: 'USD',
              failure: null,
            },
          },
          call,
        ),
    ],
  ])('%s', async (_, run) => {
    const before = mock.requests.length;
    await run();
    const sent = mock.requests.slice(before);
    expect(sent.length).toBeGreaterThan(0);
    for (const { method, path, status, said } of sent) expect(status, `${method} ${path}: ${said}`).toBe(200);
  });

  it('closing a declined try', async () => {
    const answer = await fetch(`${mock.url}/v1/payment_intents/pi_1/cancel`, {
      method: 'POST',
      headers: { authorization: 'Bearer sk_test_123', 'content-type': 'application/x-www-form-urlencoded' },
      body: 'cancellation_reason=abandoned',
    });
    expect(answer.status).toBe(200);
  });

  it('would have noticed a parameter that does not exist', async () => {
    const answer = await fetch(`${mock.url}/v1/payment_intents`, {
      method: 'POST',
      headers: { authorization: 'Bearer sk_test_123', 'content-type': 'application/x-www-form-urlencoded' },
      body: 'amount=100&currency=usd&errors_on_requires_action=true',
    });
    expect(answer.status).toBe(400);
  });

  it('and no path of the adapter is left unchecked', () => {
    const paths = mock.requests.map(
      ({ method, path }) => `${method} ${path.split('?')[0]?.replace(/(pi|re)_\w+/, ':id')}`,
    );
    expect([...new Set(paths)].sort()).toEqual([
      'GET /v1/payment_intents/:id',
      'GET /v1/payment_intents/search',
      'GET /v1/refunds',
      'GET /v1/refunds/:id',
      'POST /v1/payment_intents',
      'POST /v1/payment_intents/:id/cancel',
      'POST /v1/payment_intents/:id/capture',
      'POST /v1/refunds',
    ]);
  });
});
