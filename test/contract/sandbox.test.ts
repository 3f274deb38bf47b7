import { createHmac } from 'node:crypto';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Webhook } from 'standardwebhooks';
import { FAILURE_CODES } from '../../src/domain/payment.js';
import { type PaymentProvider, ProviderError } from '../../src/providers/provider.js';
import { createSandboxProvider } from '../../src/providers/sandbox/index.js';
import { newWebhookSecret, startSimulatorInside, type SimulatorControl } from '../support/simulator.js';
import { eventually } from '../support/simulator-api.js';
import { type AdapterHarness, describeAdapterContract, type Fault, type WebhookOptions } from './adapter-contract.js';

const [newest, older, foreign] = [newWebhookSecret(), newWebhookSecret(), newWebhookSecret()];
const WORDS: Readonly<Record<Fault, string>> = {
  hang: 'pm_commit_then_hang',
  reset: 'pm_commit_then_reset',
  unavailable: 'pm_unavailable_once',
  key_in_use: 'pm_key_in_use_once',
  rate_limited: 'pm_status_429_once',
  not_permitted: 'pm_status_403_once',
};

function sign(body: string | Buffer, options: { secret?: string; age_s?: number; event_id?: string } = {}) {
  const { secret = newest, age_s = 0, event_id = 'evt_1' } = options;
  const sent_at = new Date(Date.now() - age_s * 1000);
  const rawBody = Buffer.from(body);
  // The scheme's library takes texts only.
  const signBytes = () => {
    const hmac = createHmac('sha256', Buffer.from(secret.slice('whsec_'.length), 'base64'));
    return `v1,${hmac
      .update(`${event_id}.${Math.floor(sent_at.getTime() / 1000)}.`)
      .update(rawBody)
      .digest('base64')}`;
  };
  return {
    rawBody,
    headers: {
      'webhook-id': event_id,
      'webhook-timestamp': String(Math.floor(sent_at.getTime() / 1000)),
      'webhook-signature': typeof body === 'string' ? new Webhook(secret).sign(event_id, sent_at, body) : signBytes(),
    },
  };
}

const PAYMENT = {
  id: 'sbx_pay_1',
  reference: 'r',
  status: 'succeeded',
  amount_minor: 1000,
  amount_captured_minor: 1000,
  amount_refunded_minor: 0,
  currency: 'EUR',
  failure_code: null,
  next_action: null,
  metadata: { reference: 'r', installation_id: 'i', external_payment_id: 'e' },
};
const REFUND = {
  id: 'sbx_ref_1',
  reference: 'r',
  payment_id: 'sbx_pay_1',
  status: 'succeeded',
  amount_minor: 300,
  currency: 'EUR',
  failure_code: null,
};
const eventOf = (type: string, data: object) => ({ type, timestamp: new Date().toISOString(), data });

function webhook({ about, metadata, signed_with, ...options }: WebhookOptions) {
  const payment = { ...PAYMENT, reference: metadata.reference, metadata };
  const refund = { ...REFUND, reference: metadata.reference };
  const body = {
    charge: eventOf('payment.succeeded', { payment }),
    refund: eventOf('refund.succeeded', { payment, refund }),
    unknown_type: eventOf('payment.dreamt_of', { anything: true }),
  }[about];
  const secret = { newest_secret: newest, older_secret: older, unknown_secret: foreign }[signed_with];
  return sign(JSON.stringify(body), { secret, ...options });
}

async function startHarness(): Promise<AdapterHarness> {
  const simulator = await startSimulatorInside();
  const providerAt = (base_url: string) => createSandboxProvider({ base_url, webhook_secrets: [newest, older] });
  return {
    provider: providerAt(simulator.url),
    // Nobody may listen at port 1 but root's own tcpmux.
    unreachable: providerAt('http://127.0.0.1:1'),
    payment_methods: {
      success: 'pm_success',
      requires_action: 'pm_requires_action',
      unusable: 'pm_unheard_of',
      declines: FAILURE_CODES.map((code) => [`pm_decline_${code}`, code] as const),
    },
    unheard_of: 'not_found',
    faultyCharge: async (fault) => WORDS[fault],
    faultyNext: (provider_payment_id, kind, fault) => simulator.next(provider_payment_id, kind, WORDS[fault]),
    movements: async (reference) => (await simulator.movements({ reference })).length,
    catchUp: async () => undefined,
    webhook,
    stop: () => simulator.stop(),
  };
}

describeAdapterContract('sandbox', startHarness);

const call = (provider_key: string, timeout_ms = 2_000) => ({ provider_key, timeout_ms });
const metadata = (reference: string) => ({ reference, installation_id: 'i', external_payment_id: 'e' });
const chargeBy = (
  provider: PaymentProvider,
  key: string,
  payment_method: string | null = null,
  timeout_ms?: number,
) => {
  const request = { amount_minor: 1000n, currency: 'EUR', capture: 'automatic', return_url: null } as const;
  return provider.charge({ ...request, payment_method, metadata: metadata(key) }, call(key, timeout_ms));
};
const target = (reference: string) => ({
  kind: 'charge' as const,
  reference,
  charge_reference: reference,
  provider_payment_id: null,
  provider_refund_id: null,
  currency: 'EUR',
  external_payment_id: 'e',
  installation_id: 'i',
});
const kindAndReason = (error: unknown) => (error instanceof ProviderError ? [error.kind, error.reason] : error);

describe('the sandbox adapter', () => {
  let simulator: SimulatorControl & { stop(): Promise<void> };
  let provider: PaymentProvider;
  beforeAll(async () => {
    simulator = await startSimulatorInside();
    provider = createSandboxProvider({ base_url: simulator.url, webhook_secrets: [newest, older] });
  });
  afterAll(() => simulator.stop());

  it('sends nothing that a lost database would make anew', async () => {
    await chargeBy(provider, 'key-1');
    expect(await simulator.payments('key-1')).toMatchObject([{ reference: 'key-1', metadata: metadata('key-1') }]);
    expect(await simulator.calls({ operation: 'charge' })).toMatchObject([
      { operation: 'charge', idempotency_key: 'key-1', amount_minor: 1000 },
    ]);
  });

  it('a failed charge may still succeed: it is not closed, and the look-up tells when it does', async () => {
    expect(await chargeBy(provider, 'key-2', 'pm_decline_then_succeed_50')).toMatchObject({
      status: 'failed',
      closed: false,
    });
    const told = () => provider.retrieve(target('key-2'), { timeout_ms: 2_000 });
    await eventually(async () => expect(await told()).toMatchObject({ status: 'succeeded', failure: null }));
  });

  it('a lagging look-up says not_found, like every look-up that has nothing to show', async () => {
    await chargeBy(provider, 'key-3', 'pm_lookup_lag_1000');
    const told = () => provider.retrieve(target('key-3'), { timeout_ms: 2_000 });
    expect(await told()).toBe('not_found');
    await eventually(async () => expect(await told()).toMatchObject({ status: 'succeeded' }));
  });

  it('of several charges under one reference, it shows the one that took the money', async () => {
    await chargeBy(provider, 'key-4', 'pm_success');
    await simulator.forgetKeys();
    await chargeBy(provider, 'key-4', 'pm_decline_card_declined');
    expect(await provider.retrieve(target('key-4'), { timeout_ms: 2_000 })).toMatchObject({ status: 'succeeded' });
  });

  it('a capture or cancel that comes too late says what the charge has become', async () => {
    const { provider_payment_id } = await chargeBy(provider, 'key-6');
    const about = { provider_payment_id, metadata: metadata('key-6'), currency: 'EUR', amount_minor: 1n };
    const became = { status: 'succeeded', amount_captured_minor: 1000n };
    expect(await provider.capture(about, call('capture-6'))).toMatchObject(became);
    expect(await provider.cancel(about, call('cancel-6'))).toMatchObject(became);
    const failed = await chargeBy(provider, 'key-7', 'pm_decline_card_declined');
    const other = { ...about, provider_payment_id: failed.provider_payment_id };
    const error = await provider.capture(other, call('capture-7')).catch(kindAndReason);
    expect(error).toEqual(['refused', 'invalid_state']);
    await provider.cancel(other, call('cancel-7'));
    expect(await provider.capture(other, call('capture-8'))).toMatchObject({ status: 'canceled', closed: true });
  });

  it('a refund that is taken back is failed', async () => {
    const { provider_payment_id } = await chargeBy(provider, 'key-5');
    const about = { provider_payment_id, amount_minor: 100n, currency: 'EUR', reason: null };
    const fact = await provider.refund({ ...about, metadata: metadata('ref-5') }, call('ref-5'));
    await simulator.refundStatus(fact.provider_refund_id, 'failed');
    const refund = { ...target('ref-5'), kind: 'refund' as const };
    expect(await provider.retrieve(refund, { timeout_ms: 2_000 })).toMatchObject({
      status: 'failed',
      failure: { code: 'processing_error' },
    });
  });
});

describe('an answer of something else than the sandbox', () => {
  async function against<T>(
    listener: RequestListener,
    run: (provider: PaymentProvider) => Promise<T>,
  ): Promise<unknown> {
    const server = createServer(listener);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const base_url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/base`;
    try {
      return await run(createSandboxProvider({ base_url, webhook_secrets: [] })).catch(kindAndReason);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  }
  const answering =
    (status: number, text: string): RequestListener =>
    (_, res) =>
      res.writeHead(status).end(text);

  it.each<[number, string, string, string]>([
    [404, 'a page', '<html>not here</html>', 'http_404'],
    [400, 'JSON of its own', '{"message": "a proxy"}', 'http_400'],
    [401, 'its words', '{"error": {"code": "x", "message": "x"}}', 'not_permitted'],
    [403, 'nothing', '', 'not_permitted'],
    [429, 'nothing', '', 'rate_limited'],
    [502, 'a page', '<html>', 'http_502'],
    [302, 'nothing', '', 'http_302'],
    [201, 'nothing', '', 'unreadable_answer'],
    [201, 'half a payment', '{"id": "x"}', 'unreadable_answer'],
    [201, 'another status', JSON.stringify({ ...PAYMENT, status: 'new' }), 'unreadable_answer'],
    [201, 'a broken amount', JSON.stringify({ ...PAYMENT, amount_minor: 1.5 }), 'unreadable_answer'],
    [201, 'far too much', `"${'x'.repeat(2_000_000)}"`, 'unreadable_answer'],
  ])('%i with %s is unknown', async (status, _, text, reason) => {
    expect(await against(answering(status, text), (provider) => chargeBy(provider, 'k'))).toEqual(['unknown', reason]);
    const asked = await against(answering(status, text), (p) => p.retrieve(target('k'), { timeout_ms: 2_000 }));
    expect(asked).toEqual(['unknown', status === 201 ? expect.any(String) : reason]);
  });

  it('half an answer, or one that trickles, is cut off in time', async () => {
    const half: RequestListener = (req, res) => {
      res.writeHead(201, { 'content-length': 500 }).write('{"id":');
      setTimeout(() => req.socket.destroy(), 30);
    };
    expect(await against(half, (provider) => chargeBy(provider, 'k'))).toEqual(['unknown', 'connection_reset']);
    const trickling: RequestListener = (_, res) => {
      res.writeHead(201);
      const timer = setInterval(() => res.write(' '), 20);
      res.on('close', () => clearInterval(timer));
    };
    const started = performance.now();
    expect(await against(trickling, (provider) => chargeBy(provider, 'k', null, 150))).toEqual(['unknown', 'timeout']);
    expect(performance.now() - started).toBeLessThan(2_000);
  });

  it('a host without an address: not sent', async () => {
    const provider = createSandboxProvider({ base_url: 'http://nobody.invalid', webhook_secrets: [] });
    expect(await chargeBy(provider, 'k').catch(kindAndReason)).toEqual(['not_sent', 'unknown_host']);
  });
});

describe('a webhook of the sandbox', () => {
  const provider = createSandboxProvider({ base_url: 'http://127.0.0.1:1', webhook_secrets: [newest, older] });
  const parse = (body: string | Buffer, more: Record<string, string> = {}) => {
    const { headers, rawBody } = sign(body);
    return provider.parseWebhook({ ...headers, ...more }, rawBody);
  };

  it('of a refund made at the dashboard has our charge and no refund of ours', () => {
    const refund = { ...REFUND, reference: null };
    const event = parse(
      JSON.stringify(eventOf('refund.failed', { payment: PAYMENT, refund: { ...refund, status: 'failed' } })),
    );
    expect(event).toMatchObject({ charge_metadata: PAYMENT.metadata, refund_metadata: null });
    expect(event.fact).toMatchObject({ status: 'failed', failure: { code: 'provider_rejected' } });
  });

  it('of a payment without our metadata is not ours', () => {
    const payment = { ...PAYMENT, metadata: { reference: 'r' } };
    expect(parse(JSON.stringify(eventOf('payment.failed', { payment })))).toMatchObject({ charge_metadata: null });
  });

  it('may be laid out as it likes, be large, and carry members that we don’t know', () => {
    const event = {
      ...eventOf('payment.succeeded', { payment: { ...PAYMENT, new: 1 }, more: 'x'.repeat(300_000) }),
      also: [],
    };
    expect(parse(`\n\t ${JSON.stringify(event, null, 7)}\r\n`).fact).toMatchObject({ type: 'charge' });
  });

  it.each([
    ['no JSON', 'nothing', /no JSON/],
    ['nothing at all', '', /no JSON/],
    ['no UTF-8', Buffer.from([0x7b, 0xff, 0x7d]), /no JSON in UTF-8/],
    ['no event', '[]', /the event can't be read/],
    ['no type', '{"timestamp": "2026-01-01T00:00:00Z"}', /type/],
    ['no time', JSON.stringify({ ...eventOf('payment.failed', { payment: PAYMENT }), timestamp: 'x' }), /timestamp/],
    ['no payment', JSON.stringify(eventOf('payment.failed', {})), /the data of payment.failed can't be read: payment/],
    ['no data', JSON.stringify({ type: 'refund.failed', timestamp: '2026-01-01T00:00:00Z' }), /refund.failed/],
    [
      'no such amount',
      JSON.stringify(eventOf('payment.failed', { payment: { ...PAYMENT, amount_minor: -1 } })),
      /amount_minor/,
    ],
  ])('signed, but %s: an error that says so, and no bad signature', (_, body, message) => {
    expect(() => parse(body)).toThrow(message);
    expect(() => parse(body)).not.toThrow('InvalidSignature');
  });

  it('may carry several signatures, of several versions', () => {
    const { headers, rawBody } = sign(JSON.stringify(eventOf('payment.failed', { payment: PAYMENT })));
    const signature = headers['webhook-signature'];
    const parseWith = (value: string) =>
      provider.parseWebhook({ ...headers, 'webhook-signature': value }, rawBody).type;
    expect(parseWith(`v1a,abc v1,${'A'.repeat(43)}= ${signature}`)).toBe('payment.failed');
    for (const wrong of [signature.replace('v1,', 'v2,'), signature.slice(3), `${signature}x`, 'v1,é', 'v1']) {
      expect(() => parseWith(wrong)).toThrow(/no signature/);
    }
  });

  it('is refused with a time or an id that is none', () => {
    const body = JSON.stringify(eventOf('payment.failed', { payment: PAYMENT }));
    for (const timestamp of ['-1', '1e9', ' 1', '0x10', '9'.repeat(13), `${Math.floor(Date.now() / 1000)}abc`]) {
      expect(() => parse(body, { 'webhook-timestamp': timestamp })).toThrow(/webhook-timestamp|5 minutes/);
    }
    for (const id of ['a b', 'x'.repeat(256), 'é'])
      expect(() => parse(body, { 'webhook-id': id })).toThrow(/webhook-id/);
  });

  it('is always refused without a secret; an empty secret is refused at start', () => {
    const none = createSandboxProvider({ base_url: 'http://127.0.0.1:1', webhook_secrets: [] });
    const { headers, rawBody } = sign('{}');
    expect(() => none.parseWebhook(headers, rawBody)).toThrow(/no signature/);
    const unsigned = createHmac('sha256', '').update('x').digest('base64');
    expect(() => none.parseWebhook({ ...headers, 'webhook-signature': `v1,${unsigned}` }, rawBody)).toThrow(
      /no signature/,
    );
    for (const secret of ['', 'whsec_', 'whsec_ä', 'whsec_====']) {
      const start = () => createSandboxProvider({ base_url: 'http://127.0.0.1:1', webhook_secrets: [newest, secret] });
      expect(start).toThrow(/SANDBOX_WEBHOOK_SECRETS/);
    }
  });
});
