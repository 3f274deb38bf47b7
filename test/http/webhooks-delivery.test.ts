import { createHmac, randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createSandboxProvider } from '../../src/providers/sandbox/index.js';
import { TestSystem } from '../support/app.js';
import { type Made, made } from '../support/follow-up.js';
import { newWebhookSecret } from '../support/simulator.js';
import { atProvider, counted, deliver, eventRow, isMarked, newEventId, stateOf, told } from '../support/webhooks.js';

let system: TestSystem;
beforeAll(async () => {
  system = await TestSystem.start({ env: { RATE_LIMIT_PER_SECOND: '1' } });
});
afterAll(() => system.close());

/** A payment that waits for its customer, and the event that would end it. */
async function open(): Promise<{ payment: Made; success: object }> {
  // Clients may ask once a second here, so each payment has a client of its own.
  const api_key = await system.client(`client-${randomBytes(4).toString('hex')}`);
  const payment = await made(system, { payment_method: 'pm_requires_action' }, { api_key });
  return { payment, success: told('succeeded', await atProvider(system, payment)) };
}

const statusOf = async (payment: Made): Promise<string | undefined> => (await stateOf(system, payment)).status;

describe('a signed notification', () => {
  it('is taken: 200 without a body, applied, marked, kept, counted', async () => {
    const { payment, success } = await open();
    const event_id = newEventId();
    const before = await counted(system.first, 'applied');
    const answer = await deliver(system, success, { event_id });
    expect(answer).toMatchObject({ status: 200, text: '' });
    expect(answer.headers.get('request-id')).toBeTruthy();
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 1000,
      operations: ['charge succeeded 1000'],
      anomalies: [],
      events: ['PaymentRequiresAction', 'PaymentSucceeded'],
    });
    expect(await isMarked(system, event_id)).toBe(true);
    expect(await eventRow(system, event_id)).toMatchObject({
      type: 'payment.succeeded',
      outcome: 'applied',
      payment_id: payment.id,
      failures: 0,
      fact: { status: 'succeeded', amount_minor: '1000' },
    });
    expect(await counted(system.first, 'applied')).toBe(before + 1);
  });

  it('of a type that is not known is acknowledged and changes nothing', async () => {
    const event_id = newEventId();
    const before = await counted(system.first, 'ignored');
    for (const type of ['payment.created', 'dispute.opened', 'x'.repeat(3_000), 'наличные \u0000 \ud800']) {
      const body = { type, timestamp: new Date().toISOString(), data: { anything: [1, { at: 'all' }] } };
      expect((await deliver(system, body, { event_id: `${event_id}-${type.length}` })).status).toBe(200);
    }
    expect(await eventRow(system, `${event_id}-15`)).toMatchObject({ type: 'payment.created', outcome: 'ignored' });
    expect(await counted(system.first, 'ignored')).toBe(before + 4);
  });

  it('needs no API key, and meets no rate limit: 60 within a moment', async () => {
    const { success } = await open();
    const answers = await Promise.all(Array.from({ length: 60 }, () => deliver(system, success)));
    expect(answers.map(({ status }) => status)).toEqual(Array(60).fill(200));
    // Nor is a wrong one looked at.
    const headers = { authorization: 'Bearer not-a-key' };
    expect((await deliver(system, success, { headers })).status).toBe(200);
  });

  it('to a provider that is not configured is 404, and GET is 405', async () => {
    const { success } = await open();
    expect((await deliver(system, success, { provider: 'stripe' })).status).toBe(404);
    expect((await fetch(`${system.first.url}/webhooks/sandbox`)).status).toBe(405);
  });
});

describe('the raw body', () => {
  it('is what the signature is over: white space, order of members and escapes stay as they came', async () => {
    const { payment, success } = await open();
    const text = ` \r\n\t${JSON.stringify(success, null, '\t').replaceAll('succeeded', '\\u0073ucceeded')}\n\n `;
    expect((await deliver(system, text)).status).toBe(200);
    expect(await statusOf(payment)).toBe('succeeded');
  });

  it.each([
    ['text/plain', 'text/plain'],
    ['no content type', undefined],
    ['a charset', 'application/json; charset=iso-8859-1'],
    ['one of the provider’s own', 'application/cloudevents+json'],
    ['a form', 'application/x-www-form-urlencoded'],
  ])('may come as %s', async (_name, content_type) => {
    const { payment, success } = await open();
    expect((await deliver(system, success, { headers: { 'content-type': content_type } })).status).toBe(200);
    expect(await statusOf(payment)).toBe('succeeded');
  });

  it('may have 300 KB, and up to 1 MB', async () => {
    for (const bytes of [300 * 1024, 1024 * 1024]) {
      const { payment, success } = await open();
      const text = JSON.stringify({ ...success, padding: '' });
      const padded = text.replace('"padding":""', `"padding":"${'x'.repeat(bytes - text.length)}"`);
      expect(padded).toHaveLength(bytes);
      expect((await deliver(system, padded)).status).toBe(200);
      expect(await statusOf(payment)).toBe('succeeded');
    }
  });

  it('of more than 1 MB is 413, announced or not', async () => {
    const body = Buffer.alloc(1024 * 1024 + 1, ' ');
    const answer = await deliver(system, body);
    expect(answer.status).toBe(413);
    expect(JSON.parse(answer.text)).toMatchObject({ code: 'body_too_large', status: 413 });

    const chunks = new ReadableStream({
      start(controller) {
        for (let sent = 0; sent <= 1024 * 1024; sent += 64 * 1024) controller.enqueue(Buffer.alloc(64 * 1024, ' '));
        controller.close();
      },
    });
    const unannounced = { method: 'POST', body: chunks, duplex: 'half' } as RequestInit;
    const status = await fetch(`${system.first.url}/webhooks/sandbox`, unannounced).then(
      (response) => response.status,
      // The answer comes while the body is still being sent; a client may see the connection go instead.
      () => 413,
    );
    expect(status).toBe(413);
  });

  it('that is compressed is no signed body', async () => {
    const { payment, success } = await open();
    const packed = gzipSync(JSON.stringify(success));
    const signature = new Webhook(system.simulator.webhook_secret).sign('id', new Date(), JSON.stringify(success));
    const headers = { 'content-encoding': 'gzip', 'webhook-id': 'id', 'webhook-signature': signature };
    expect((await deliver(system, packed, { headers })).status).toBe(401);
    expect(await statusOf(payment)).toBe('requires_action');
  });
});

describe('the signature', () => {
  const sign = (secret: string, event_id: string, at: Date, text: string): string =>
    new Webhook(secret).sign(event_id, at, text);

  it('is looked for among several: other versions, other secrets, in any order', async () => {
    const { payment, success } = await open();
    const [event_id, text, now] = [newEventId(), JSON.stringify(success), new Date()];
    const right = sign(system.simulator.webhook_secret, event_id, now, text);
    const others = [sign(newWebhookSecret(), event_id, now, text), 'v1a,c2lnbmVk', 'v2,AAAA', 'v1,', 'nonsense'];
    const headers = { 'webhook-signature': [...others, right, ...others].join(' ') };
    expect((await deliver(system, text, { event_id, headers })).status).toBe(200);
    expect(await statusOf(payment)).toBe('succeeded');
  });

  it('may be of either secret while they are being rotated, and of no other', async () => {
    const [newer, older] = [newWebhookSecret(), newWebhookSecret()];
    const rotated = { base_url: system.simulator.url, webhook_secrets: [newer, older] };
    const rotating = await system.join({ wrapProvider: () => createSandboxProvider(rotated) });
    for (const [secret, status] of [
      [newer, 200],
      [older, 200],
      [system.simulator.webhook_secret, 401],
    ] as const) {
      const { payment, success } = await open();
      expect((await deliver(system, success, { secret, instance: rotating })).status).toBe(status);
      expect(await statusOf(payment)).toBe(status === 200 ? 'succeeded' : 'requires_action');
    }
  });

  it.each([
    ['no id', { 'webhook-id': undefined }],
    ['no time', { 'webhook-timestamp': undefined }],
    ['no signature', { 'webhook-signature': undefined }],
    ['an empty id', { 'webhook-id': '' }],
    ['another id than signed', { 'webhook-id': 'sbx_evt_other' }],
    ['an id of 256 characters', { 'webhook-id': 'x'.repeat(256) }],
    ['an id with a space inside', { 'webhook-id': 'a b' }],
    ['an empty signature', { 'webhook-signature': '' }],
    ['a signature without its version', { 'webhook-signature': 'c2lnbmF0dXJl' }],
    ['a signature of another version', { 'webhook-signature': 'v2,c2lnbmF0dXJl' }],
    ['a signature that is no base64', { 'webhook-signature': 'v1,§§§' }],
    ['8 KB of signatures', { 'webhook-signature': 'v1,AAAA '.repeat(1_000).trim() }],
    ['a time in words', { 'webhook-timestamp': 'Sun, 29 Nov 2026 12:00:00 GMT' }],
    ['a time in milliseconds', { 'webhook-timestamp': String(Date.now()) }],
    ['a negative time', { 'webhook-timestamp': '-1' }],
    ['a time with a fraction', { 'webhook-timestamp': '1764417600.5' }],
    ['an endless time', { 'webhook-timestamp': '9'.repeat(400) }],
    ['two times', { 'webhook-timestamp': '1764417600, 1764417600' }],
  ])('with %s is 401, and nothing changes', async (_name, headers) => {
    const before = await counted(system.first, 'invalid_signature');
    const event = { type: 'payment.created', timestamp: new Date().toISOString() };
    const latin = Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, value && Buffer.from(value).toString('latin1')]),
    );
    const answer = await deliver(system, event, { headers: latin });
    expect(answer.status).toBe(401);
    expect(JSON.parse(answer.text)).toMatchObject({ code: 'unauthenticated' });
    expect(await counted(system.first, 'invalid_signature')).toBe(before + 1);
    expect(
      await system.query(`select 1 from provider_event where type = 'payment.created' and event_id !~ '-15$'`),
    ).toEqual([]);
  });

  it('of another body is 401: one byte is enough', async () => {
    const { payment, success } = await open();
    const [event_id, text, now] = [newEventId(), JSON.stringify(success), new Date()];
    const headers = { 'webhook-signature': sign(system.simulator.webhook_secret, event_id, now, `${text} `) };
    expect((await deliver(system, text, { event_id, headers })).status).toBe(401);
    expect((await deliver(system, '', { event_id, headers })).status).toBe(401);
    expect(await statusOf(payment)).toBe('requires_action');
  });

  it('made with an empty secret is 401', async () => {
    const { payment, success } = await open();
    const text = JSON.stringify(success);
    const at_s = Math.floor(Date.now() / 1000);
    const signature = createHmac('sha256', '').update(`id.${at_s}.${text}`).digest('base64');
    const headers = { 'webhook-id': 'id', 'webhook-timestamp': String(at_s), 'webhook-signature': `v1,${signature}` };
    expect((await deliver(system, text, { headers })).status).toBe(401);
    expect(await statusOf(payment)).toBe('requires_action');
  });

  it.each([
    ['6 minutes ago', -360, 401],
    ['6 minutes ahead', 360, 401],
    ['4 minutes ago', -240, 200],
    ['4 minutes ahead', 240, 200],
  ])('made %s', async (_name, signed_at_s, status) => {
    const { payment, success } = await open();
    expect((await deliver(system, success, { signed_at_s })).status).toBe(status);
    expect(await statusOf(payment)).toBe(status === 200 ? 'succeeded' : 'requires_action');
  });
});
