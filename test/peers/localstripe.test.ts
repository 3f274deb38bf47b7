import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOCALSTRIPE } from '../../scripts/peers/peers.js';
import type { ChargeFact } from '../../src/domain/fact.js';
import type { PaymentProvider, ProviderEvent } from '../../src/providers/provider.js';
import { createStripeProvider } from '../../src/providers/stripe/index.js';
import { hasPeer, type RunningPeer, startLocalstripe } from '../support/stripe-peers.js';
import { chargeRequest, providerErrorOf, target } from '../support/stripe-requests.js';

/**
 * Somebody else's idea of how Stripe keeps charges, captures and refunds. It has no idempotency keys, no Search, no
 * partial captured amounts and no intent in a decline's error; those are covered by the stand-in of test/contract.
 */
describe.skipIf(!hasPeer(LOCALSTRIPE))('flows against localstripe', () => {
  let peer: RunningPeer;
  let provider: PaymentProvider;
  let receiver: Server;
  const events: ProviderEvent[] = [];
  const webhook_secret = 'whsec_localstripe';
  const call = { provider_key: 'b'.repeat(64), timeout_ms: 10_000 };
  const { metadata } = chargeRequest('order');

  beforeAll(async () => {
    peer = await startLocalstripe();
    provider = createStripeProvider({
      secret_key: 'sk_test_12345',
      api_base: peer.url,
      webhook_secrets: [webhook_secret],
    });
    receiver = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        events.push(provider.parseWebhook(request.headers, Buffer.concat(chunks)));
        response.end();
      });
    });
    await new Promise<void>((listening) => receiver.listen(0, '127.0.0.1', listening));
    await fetch(`${peer.peer_url}/_config/webhooks/ours`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        url: `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`,
        secret: webhook_secret,
      }),
    });
  });
  afterAll(async () => {
    await new Promise<void>((closed) => receiver.close(() => closed()));
    await peer.close();
  });

  function charge(differs: Parameters<typeof chargeRequest>[1] = {}): Promise<ChargeFact> {
    return provider.charge(chargeRequest('order', differs), call);
  }

  it('charges, and its signed webhook names our charge', async () => {
    const fact = await charge();
    expect(fact).toMatchObject({
      status: 'succeeded',
      amount_minor: 1000n,
      amount_captured_minor: 1000n,
      currency: 'USD',
    });
    expect(await provider.retrieve(target({ id: fact.provider_payment_id }), call)).toMatchObject({
      status: 'succeeded',
    });
    await expect
      .poll(() => events.find((event) => event.fact?.provider_payment_id === fact.provider_payment_id), {
        timeout: 10_000,
      })
      .toMatchObject({ type: 'payment_intent.succeeded', charge_metadata: metadata, fact: { status: 'succeeded' } });
  });

  it('authorizes and captures', async () => {
    const held = await charge({ capture: 'manual' });
    expect(held).toMatchObject({ status: 'authorized', amount_captured_minor: 0n });
    const on = { provider_payment_id: held.provider_payment_id, currency: 'USD', metadata };
    expect(await provider.capture({ ...on, amount_minor: 1000n }, call)).toMatchObject({
      status: 'succeeded',
      amount_captured_minor: 1000n,
    });
  });

  it('cancels an authorization', async () => {
    const held = await charge({ capture: 'manual' });
    const request = { provider_payment_id: held.provider_payment_id, metadata };
    expect(await provider.cancel(request, call)).toMatchObject({ status: 'canceled', closed: true });
    expect(await provider.retrieve(target({ kind: 'cancel', id: held.provider_payment_id }), call)).toMatchObject({
      status: 'canceled',
    });
  });

  it('refunds a part, and finds the refund by its id and by our reference', async () => {
    const paid = await charge();
    const id = paid.provider_payment_id;
    const refund = { provider_payment_id: id, amount_minor: 250n, currency: 'USD', reason: null };
    const made = await provider.refund({ ...refund, metadata: { ...metadata, reference: 'refund-1' } }, call);
    expect(made).toMatchObject({ status: 'succeeded', amount_minor: 250n, provider_payment_id: id });
    const known = target({ kind: 'refund', id, refund_id: made.provider_refund_id });
    expect(await provider.retrieve(known, call)).toEqual(made);
    expect(await provider.retrieve(target({ kind: 'refund', id, reference: 'refund-1' }), call)).toEqual(made);
    expect(await provider.retrieve(target({ kind: 'refund', id, reference: 'refund-2' }), call)).toBe('not_found');
    expect(await provider.retrieve(target({ id }), call)).toMatchObject({ amount_refunded_minor: 250n });
  });

  it('a decline and an unknown payment method move nothing', async () => {
    expect(await providerErrorOf(charge({ payment_method: 'pm_card_chargeCustomerFail' }))).toMatchObject({
      kind: 'refused',
      failure: { code: 'card_declined' },
    });
    expect((await providerErrorOf(charge({ payment_method: 'pm_none' }))).kind).toBe('refused');
  });
});
