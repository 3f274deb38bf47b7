import { randomUUID } from 'node:crypto';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { newCharge, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';
import { soon } from '../support/soon.js';

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const RETENTION_MS = 72 * 60 * 60_000;

let system: TestSystem;
beforeAll(async () => {
  system = await TestSystem.start();
});
afterAll(() => system.close(checkInvariants));

describe('a charge', () => {
  it('is answered 201 with the payment, which GET then shows the same', async () => {
    const body = newCharge({
      amount: '10.5',
      payment_method: 'pm_success',
      order_id: 'ä-1',
      description: 'Two books',
      metadata: { b: '1', a: '2' },
      return_url: 'https://shop.example/r',
    });
    const answer = await system.charge(body).expect(201);

    expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
    expect(answer.headers.location).toBe(`/payments/${answer.body.id}`);
    expect(answer.headers['idempotent-replayed']).toBeUndefined();
    const expires_in_ms = Date.parse(answer.headers['idempotency-key-expires']!) - Date.now();
    expect(Math.abs(expires_in_ms - RETENTION_MS)).toBeLessThan(60_000);
    expect(answer.body).toEqual({
      id: expect.stringMatching(UUID_V7),
      status: 'succeeded',
      amount: '10.50',
      currency: 'EUR',
      amount_captured: '10.50',
      amount_refunded: '0.00',
      customer_id: 'customer-1',
      external_payment_id: body.external_payment_id,
      provider: 'sandbox',
      provider_payment_id: expect.stringMatching(/^sbx_pay_/),
      payment_method: 'pm_success',
      capture: 'automatic',
      order_id: 'ä-1',
      description: 'Two books',
      metadata: { b: '1', a: '2' },
      failure: null,
      next_action: null,
      created_at: expect.any(String),
      updated_at: expect.any(String),
    });
    expect(Object.keys(answer.body.metadata)).toEqual(['b', 'a']);
    const shown = await system.getPayment(answer.body.id).expect(200);
    expect(shown.text).toBe(answer.text);
  });

  it('with capture: manual is authorized, and nothing is captured', async () => {
    const body = newCharge({ capture: 'manual' });
    const answer = await system.charge(body).expect(201);
    expect(answer.body).toMatchObject({ status: 'authorized', amount_captured: '0.00', capture: 'manual' });
    expect(await system.movements(body.external_payment_id)).toMatchObject([{ kind: 'authorization' }]);
  });

  it.each(['card_declined', 'insufficient_funds', 'expired_card', 'fraud_suspected', 'processing_error'])(
    'a decline (%s) is 201 with status failed, and is replayed',
    async (code) => {
      const body = newCharge({ payment_method: `pm_decline_${code}` });
      const key = randomUUID();
      const answer = await system.charge(body, { key }).expect(201);
      expect(answer.body).toMatchObject({ status: 'failed', amount_captured: '0.00', failure: { code } });
      const replay = await system.charge(body, { key }).expect(201);
      expect(replay.text).toBe(answer.text);
      expect(await system.movements(body.external_payment_id)).toEqual([]);
    },
  );

  it('that needs the customer is 201 with requires_action; its later end changes the payment and not the answer', async () => {
    const body = newCharge({ payment_method: 'pm_requires_action' });
    const key = randomUUID();
    const answer = await system.charge(body, { key }).expect(201);
    expect(answer.body).toMatchObject({ status: 'requires_action', next_action: { type: 'redirect' } });
    await system.simulator.complete(answer.body.provider_payment_id, 'succeeded');

    const jobs = system.first.startJobs();
    await soon(async () => {
      expect((await system.getPayment(answer.body.id)).body).toMatchObject({ status: 'succeeded', next_action: null });
    });
    await jobs.stop();
    expect((await system.charge(body, { key }).expect(201)).text).toBe(answer.text);
  });

  it('that the provider refuses as a request is failed: nothing was sent twice', async () => {
    const body = newCharge({ payment_method: 'pm_nonsense' });
    const answer = await system.charge(body).expect(201);
    expect(answer.body).toMatchObject({ status: 'failed', failure: { code: 'payment_method_invalid' } });
    expect(await system.calls(body.external_payment_id)).toHaveLength(1);
  });

  it.each([
    ['JPY', '500', '500'],
    ['KWD', '1.5', '1.500'],
    ['EUR', '90071992547409.91', '90071992547409.91'],
    ['EUR', '000000000000001', '1.00'],
  ])('%s %s reaches the provider exactly', async (currency, amount, shown) => {
    const body = newCharge({ currency, amount });
    const answer = await system.charge(body).expect(201);
    expect(answer.body).toMatchObject({ amount: shown, amount_captured: shown });
    const [movement] = await system.movements(body.external_payment_id);
    expect(movement).toMatchObject({ amount_minor: Number(shown.replace('.', '')), currency });
  });
});

describe('a key that comes back', () => {
  it('gets the same status, bytes and headers, and nothing moves', async () => {
    const body = newCharge();
    const key = randomUUID();
    const first = await system.charge(body, { key }).expect(201);
    const second = await system.charge(body, { key }).expect(201);

    expect(second.text).toBe(first.text);
    for (const header of ['content-type', 'location', 'idempotency-key-expires']) {
      expect(second.headers[header]).toBe(first.headers[header]);
    }
    expect(second.headers['idempotent-replayed']).toBe('true');
    expect(second.headers['request-id']).not.toBe(first.headers['request-id']);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('is the same key with or without quotes, and the same body in another order and another spelling of its amount', async () => {
    const body = newCharge({ metadata: { a: '1', b: '2' } });
    const key = randomUUID();
    const first = await system.charge(body, { key }).expect(201);
    const reordered = Object.fromEntries(Object.entries(body).reverse());
    const respelled = { ...reordered, amount: '10', metadata: { b: '2', a: '1' } };
    const second = await system.charge(respelled, { key: `"${key}"` }).expect(201);
    expect(second.text).toBe(first.text);
    expect(second.headers['idempotent-replayed']).toBe('true');
  });

  it.each([
    ['another amount', { amount: '10.01' }],
    ['another payment method', { payment_method: 'pm_other' }],
    ['another name', { external_payment_id: 'another' }],
    ['one more field', { description: '' }],
    ['a default spelled out', { capture: 'automatic' }],
  ])('with %s is 409 reused, and nothing moves', async (_name, change) => {
    const body = newCharge();
    const key = randomUUID();
    const first = await system.charge(body, { key }).expect(201);
    const reused = await system.charge({ ...body, ...change }, { key }).expect(409);
    expect(reused.body.code).toBe('idempotency_key_reused');
    expect(reused.headers['content-type']).toBe('application/problem+json; charset=utf-8');
    expect(reused.headers['retry-after']).toBeUndefined();
    expect(reused.headers['idempotency-key-expires']).toBeDefined();
    expect((await system.charge(body, { key }).expect(201)).text).toBe(first.text);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    expect(await system.movements('another')).toEqual([]);
  });

  it('with another amount is 409 reused also while the first is still under way', async () => {
    const body = newCharge();
    const key = randomUUID();
    const held = system.first.holdAt('begun');
    const first = system.charge(body, { key }).then((answer) => answer);
    await held.reached;
    const reused = await system.charge({ ...body, amount: '99.00' }, { key }).expect(409);
    expect(reused.body.code).toBe('idempotency_key_reused');
    const same = await system.charge(body, { key }).expect(409);
    expect(same.body.code).toBe('idempotency_key_in_progress');
    expect(Number(same.headers['retry-after'])).toBeGreaterThan(1);
    held.release();
    expect((await first).status).toBe(201);
  });

  it('belongs to its client: another client with the same key and body is another command', async () => {
    const other = await system.client(`client-${randomUUID()}`);
    const key = randomUUID();
    const first = await system.charge(newCharge(), { key }).expect(201);
    const second = await system.charge(newCharge(), { key, api_key: other }).expect(201);
    expect(second.body.id).not.toBe(first.body.id);
    expect(second.headers['idempotent-replayed']).toBeUndefined();
  });

  it('finds its answer also under another API key of the client, and 401 under a revoked one', async () => {
    const body = newCharge();
    const key = randomUUID();
    const id = `client-${randomUUID()}`;
    const old_key = await system.client(id);
    const first = await system.charge(body, { key, api_key: old_key }).expect(201);
    const { rotateKey } = await import('../../src/clients/changes.js');
    const new_key = (await rotateKey(system.database.pool, id, 0, { actor: 'test' })).key;
    expect((await system.charge(body, { key, api_key: new_key }).expect(201)).text).toBe(first.text);
    await soon(async () => {
      const refused = await system.charge(body, { key, api_key: old_key }).expect(401);
      expect(refused.body.code).toBe('unauthenticated');
    });
  });
});

describe('a key is not used up', () => {
  it.each([
    ['a wrong amount', { amount: '1e3' }, 400],
    ['an unknown field', { amont: '1' }, 400],
    ['a card number', { payment_method: '4242424242424242' }, 400],
  ])('by %s: the corrected body is 201 under it', async (_name, mistake, status) => {
    const body = newCharge();
    const key = randomUUID();
    await system.charge({ ...body, ...mistake }, { key }).expect(status);
    expect(await system.record(key)).toBeUndefined();
    await system.charge(body, { key }).expect(201);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('by 401, 403, 415 or an unreadable body', async () => {
    const body = newCharge();
    const key = randomUUID();
    const reader = await system.client(`reader-${randomUUID()}`, ['payments:read']);
    await system.charge(body, { key, api_key: 'oncepay_sk_wrong' }).expect(401);
    await system.charge(body, { key, api_key: reader }).expect(403);
    const raw = (type: string, text: string) =>
      request(system.first.url)
        .post('/payments')
        .set('authorization', `Bearer ${system.api_key}`)
        .set('idempotency-key', key)
        .set('content-type', type)
        .send(text);
    await raw('text/plain', JSON.stringify(body)).expect(415);
    await raw('application/json', '{"amount": "1.00"').expect(400);
    expect(await system.query('select 1 from idempotency_record where key = $1', [key])).toEqual([]);
    await system.charge(body, { key }).expect(201);
  });
});

describe('a client that hangs up', () => {
  it.each(['reserved', 'begun', 'answered'] as const)(
    'while its charge stands at "%s" changes nothing: the charge runs to its end, and the retry is a replay',
    async (step) => {
      const body = newCharge();
      const key = randomUUID();
      const held = system.first.holdAt(step);
      const hang_up = new AbortController();
      const sent = fetch(`${system.first.url}/payments`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${system.api_key}`,
          'idempotency-key': key,
          'content-type': 'application/json',
        },
        body: JSON.stringify(body),
        signal: hang_up.signal,
      });
      await held.reached;
      hang_up.abort();
      await expect(sent).rejects.toThrow();
      held.release();

      await soon(async () => expect((await system.record(key))?.state).toBe('done'));
      const retry = await system.charge(body, { key }).expect(201);
      expect(retry.headers['idempotent-replayed']).toBe('true');
      expect(retry.body.status).toBe('succeeded');
      expect(await system.movements(body.external_payment_id)).toHaveLength(1);
      expect(await system.calls(body.external_payment_id)).toHaveLength(1);
    },
  );

  it('while it waits by Prefer does not hold anything', async () => {
    const body = newCharge();
    const key = randomUUID();
    const held = system.first.holdAt('begun');
    const first = system.charge(body, { key }).then((answer) => answer);
    await held.reached;
    const hang_up = new AbortController();
    const waiting = fetch(`${system.first.url}/payments`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${system.api_key}`,
        'idempotency-key': key,
        'content-type': 'application/json',
        prefer: 'wait=30',
      },
      body: JSON.stringify(body),
      signal: hang_up.signal,
    });
    hang_up.abort();
    await expect(waiting).rejects.toThrow();
    await system.expireLease(key);
    // Whoever takes over now finds the key free to take: the one who hung up does not hold it.
    const retry = await system.charge(body, { key, wait_s: 10 }).expect(201);
    held.release();
    expect((await first).text).toBe(retry.text);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });
});

it('an instance that closes lets nobody wait by Prefer: told to come back, they find another', async () => {
  const body = newCharge();
  const key = randomUUID();
  const closing = await system.join();
  const held = system.first.holdAt('begun');
  const first = system.charge(body, { key }).then((answer) => answer);
  await held.reached;
  const looks = vi.spyOn(closing.payments.hot.reserveAndBegin, 'submit');
  const waiting = system.charge(body, { key, instance: closing, wait_s: 30 }).then((answer) => answer);
  await soon(() => expect(looks).toHaveBeenCalled());
  const closed = closing.close();
  expect(await waiting).toMatchObject({ status: 409, body: { code: 'idempotency_key_in_progress' } });
  await closed;
  held.release();
  expect((await first).status).toBe(201);
});

describe('GET /payments/{id}', () => {
  it('shows a payment to its client and to admin only', async () => {
    const { body: payment } = await system.charge(newCharge()).expect(201);
    const stranger = await system.client(`stranger-${randomUUID()}`, ['payments:read', 'payments:write']);
    const admin = await system.client(`admin-${randomUUID()}`, ['payments:read', 'admin']);
    const writer = await system.client(`writer-${randomUUID()}`, ['payments:write']);
    expect((await system.getPayment(payment.id, { api_key: stranger }).expect(404)).body.code).toBe('not_found');
    await system.getPayment(payment.id, { api_key: admin }).expect(200);
    await system.getPayment(payment.id, { api_key: writer }).expect(403);
    await request(system.first.url).get(`/payments/${payment.id}`).expect(401);
  });

  it.each(['x', '0', '%00', 'ffffffff-ffff-7fff-8fff-ffffffffffff', "'; drop table payment; --", '..%2f..'])(
    'is 404 for the id %s',
    async (id) => {
      expect((await system.getPayment(id).expect(404)).body.code).toBe('not_found');
    },
  );
});
