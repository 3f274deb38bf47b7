import { describe, expect, it } from 'vitest';
import { createInstantProvider } from '../../src/providers/instant.js';
import { InvalidSignature } from '../../src/providers/provider.js';
import { createProviders } from '../../src/providers/registry.js';

const metadata = { reference: 'r', installation_id: 'i', external_payment_id: 'e' };
const options = { provider_key: 'k', timeout_ms: 1_000 };

describe('the instant provider', () => {
  const provider = createInstantProvider();
  const charge = (capture: 'automatic' | 'manual') =>
    provider.charge(
      { amount_minor: 1050n, currency: 'EUR', payment_method: null, capture, return_url: null, metadata },
      options,
    );

  it('takes or holds the money at once, each under an id of its own', async () => {
    const taken = await charge('automatic');
    expect(taken).toMatchObject({
      status: 'succeeded',
      amount_minor: 1050n,
      amount_captured_minor: 1050n,
      currency: 'EUR',
    });
    const held = await charge('manual');
    expect(held).toMatchObject({ status: 'authorized', amount_minor: 1050n, amount_captured_minor: 0n });
    expect(held.provider_payment_id).not.toBe(taken.provider_payment_id);
  });

  it('remembers nothing, and yet tells the truth about what follows', async () => {
    const { provider_payment_id } = await charge('manual');
    const about = { provider_payment_id, metadata, currency: 'EUR' };
    expect(await provider.capture({ ...about, amount_minor: 600n }, options)).toMatchObject({
      status: 'succeeded',
      amount_minor: 1050n,
      amount_captured_minor: 600n,
    });
    expect(await provider.cancel(about, options)).toMatchObject({ status: 'canceled', closed: true, currency: 'EUR' });
    expect(await provider.refund({ ...about, amount_minor: 100n, reason: null }, options)).toMatchObject({
      status: 'succeeded',
      amount_minor: 100n,
      provider_payment_id,
    });
    const target = { kind: 'charge', reference: 'r', charge_reference: 'r', provider_payment_id } as const;
    const asked = {
      ...target,
      provider_refund_id: null,
      currency: 'EUR',
      external_payment_id: 'e',
      installation_id: 'i',
    };
    expect(await provider.retrieve(asked, options)).toBe('not_found');
    expect(() => provider.parseWebhook({}, Buffer.from('{}'))).toThrow(InvalidSignature);
  });

  it('refuses a charge that is none of its own', async () => {
    const foreign = { provider_payment_id: 'sbx_pay_1', metadata };
    await expect(provider.cancel(foreign, options)).rejects.toMatchObject({ kind: 'refused' });
  });
});

describe('the registry of providers', () => {
  const stripe = { secret_key: null, api_base: null, webhook_secrets: [] };
  const runtime = { sandbox_url: 'http://127.0.0.1:1', sandbox_webhook_secrets: ['whsec_AAAA'] };
  const create = (...providers: string[]) => createProviders({ providers, stripe }, runtime);

  it('has what is configured, the first as the default', async () => {
    const providers = await create('instant', 'sandbox');
    expect([providers.names, providers.default_name]).toEqual([['instant', 'sandbox'], 'instant']);
    expect(providers.get('sandbox')?.name).toBe('sandbox');
    expect(providers.get('stripe')).toBeUndefined();
    expect(providers.get('constructor')).toBeUndefined();
  });

  it('loads Stripe where it is asked for', async () => {
    const withKey = { secret_key: 'sk_test_x', api_base: null, webhook_secrets: ['whsec_x'] };
    const providers = await createProviders({ providers: ['stripe'], stripe: withKey }, runtime);
    expect(providers.get('stripe')?.name).toBe('stripe');
  });

  it.each<[string[], RegExp]>([
    [[], /empty/],
    [['paypal'], /paypal, which is none/],
    [['instant', 'instant'], /instant twice/],
    [['stripe'], /STRIPE_SECRET_KEY/],
  ])('fails closed for %j', async (names, message) => {
    await expect(create(...names)).rejects.toThrow(message);
  });

  it('fails closed for a sandbox without an address or with an empty secret', async () => {
    const config = { providers: ['sandbox'], stripe };
    await expect(createProviders(config, { ...runtime, sandbox_url: null })).rejects.toThrow(/no address/);
    await expect(createProviders(config, { ...runtime, sandbox_webhook_secrets: ['whsec_'] })).rejects.toThrow(
      /SECRETS/,
    );
  });
});
