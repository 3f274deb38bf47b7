import { randomUUID } from 'node:crypto';
import request from 'supertest';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Problem } from '../../src/contract/schemas.js';
import { newCharge, TestSystem } from '../support/app.js';
import { cancel, capture, get, type Made, made, moved, refund, rows, send } from '../support/follow-up.js';
import { checkFollowUps } from '../support/follow-up-invariants.js';
import { checkInvariants } from '../support/invariants.js';

let system: TestSystem;
beforeAll(async () => {
  system = await TestSystem.start();
});
afterAll(() =>
  system.close(async () => {
    await checkInvariants(system);
    await checkFollowUps(system);
  }),
);

let captured: Made;
let held: Made;
beforeEach(async () => {
  [captured, held] = await Promise.all([made(system), made(system, { capture: 'manual' })]);
});

/** Neither a row nor a movement comes of what is refused, and its key is free. */
async function nothingHappened(key: string): Promise<void> {
  expect((await rows(system, captured.id)).operations).toEqual([]);
  expect((await rows(system, held.id)).operations).toEqual([]);
  expect(await moved(system, captured)).toEqual(['charge 1000']);
  expect(await moved(system, held)).toEqual(['authorization 1000']);
  expect(await system.record(key)).toBeUndefined();
}

describe('bad input', () => {
  const AMOUNTS: unknown[] = [
    null,
    '0',
    '0.00',
    '-10',
    '+1',
    '10.001',
    '1e2',
    '0x10',
    ' 1',
    '1 ',
    '',
    '.5',
    '5.',
    '1,00',
    '1_0',
    '١',
    1,
    10.5,
    true,
    [],
    {},
    'NaN',
    'Infinity',
    '9007199254740992',
    '1'.repeat(16),
    '1\u0000',
  ];
  it.each(AMOUNTS)(
    'a refund or capture of the amount %j is 400 with its place, and nothing has happened',
    async (amount) => {
      const key = randomUUID();
      for (const answer of [
        await refund(system, captured.id, { amount }, { key }),
        await capture(system, held.id, { amount }, { key }),
      ]) {
        expect([answer.status, answer.body.code]).toEqual([400, 'validation_failed']);
        expect(answer.body.errors).toEqual([{ path: '/amount', message: expect.any(String) }]);
        expect(() => Problem.parse(answer.body)).not.toThrow();
      }
      await nothingHappened(key);
      // Corrected, it may keep its key.
      await refund(system, captured.id, { amount: '1.00' }, { key }).expect(201);
    },
  );

  it('the digits of another currency', async () => {
    const yen = await made(system, { amount: '500', currency: 'JPY' });
    const key = randomUUID();
    expect((await refund(system, yen.id, { amount: '100.0' }, { key }).expect(400)).body.errors[0].path).toBe(
      '/amount',
    );
    expect(await system.record(key)).toBeUndefined();
    expect((await refund(system, yen.id, { amount: '100' }, { key }).expect(201)).body.amount).toBe('100');
    const dinar = await made(system, { amount: '1.234', currency: 'KWD' });
    await refund(system, dinar.id, { amount: '0.0001' }).expect(400);
    expect((await refund(system, dinar.id, { amount: '0.001' }).expect(201)).body.amount).toBe('0.001');
    expect(await moved(system, dinar)).toEqual(['charge 1234', 'refund 1']);
  });

  const BODIES: [string, unknown, string[]][] = [
    ['an unknown member', { amount: '1.00', currency: 'EUR' }, ['/currency']],
    ['a list', [], ['']],
    ['a text', '"1.00"', ['']],
    ['null', 'null', ['']],
  ];
  it.each(BODIES)('%s as the body of any of them', async (_name, body, paths) => {
    const key = randomUUID();
    for (const path of [
      `/payments/${captured.id}/refunds`,
      `/payments/${held.id}/capture`,
      `/payments/${held.id}/cancel`,
    ]) {
      const text = typeof body === 'string' ? body : JSON.stringify(body);
      const answer = await send(system, path, undefined, { key }).set('content-type', 'application/json').send(text);
      expect([answer.status, answer.body.code], path).toEqual([400, 'validation_failed']);
      const found = answer.body.errors.map((error: { path: string }) => error.path);
      expect(found).toEqual(path.endsWith('cancel') && paths[0] === '/currency' ? ['/amount', '/currency'] : paths);
    }
    await nothingHappened(key);
  });

  it('a member twice, a broken body, another content type', async () => {
    const key = randomUUID();
    const cases: [string, string, number, string][] = [
      ['{"amount":"1.00","amount":"2.00"}', 'application/json', 400, 'malformed_body'],
      ['{"amount":', 'application/json', 400, 'malformed_body'],
      ['{"amount":"1.00"}', 'text/plain', 415, 'unsupported_media_type'],
      ['amount=1.00', 'application/x-www-form-urlencoded', 415, 'unsupported_media_type'],
    ];
    for (const [body, type, status, code] of cases) {
      const answer = await send(system, `/payments/${captured.id}/refunds`, undefined, { key })
        .set('content-type', type)
        .send(body);
      expect([answer.status, answer.body.code], body).toEqual([status, code]);
    }
    await nothingHappened(key);
  });

  it('an empty body with a JSON content type: cancel and capture take it, a refund wants an object', async () => {
    const key = randomUUID();
    const empty = (path: string) =>
      send(system, path, undefined, { key }).set('content-type', 'application/json').set('content-length', '0');
    const refused = await empty(`/payments/${captured.id}/refunds`).expect(400);
    expect(refused.body).toMatchObject({ code: 'validation_failed', errors: [{ path: '' }] });
    await nothingHappened(key);
    expect((await empty(`/payments/${held.id}/capture`).expect(200)).body.status).toBe('succeeded');
    const other = await made(system, { capture: 'manual' });
    const canceled = await send(system, `/payments/${other.id}/cancel`).set('content-type', 'application/json');
    expect([canceled.status, canceled.body.status]).toEqual([200, 'canceled']);
  });

  it.each([
    ['no UUID', 'order-1'],
    ['a NUL', '%00'],
    ['a NUL behind an id', `019b3c5e-7a10-7000-8000-000000000001%00`],
    ['a UUID of another version', '3f1c8a52-8a0e-4a5c-9d0a-0f6f1f0c9b11'],
    ['an id that nobody has', '019b3c5e-7a10-7000-8000-000000000001'],
    ['SQL', "1'%20or%20'1'='1"],
    ['dots', '%2e%2e%2f'],
  ])('a path with %s is 404 on every route, and the key is free', async (_name, id) => {
    const key = randomUUID();
    for (const answer of [
      await get(system, `/payments/${id}`),
      await get(system, `/payments/${id}/refunds`),
      await get(system, `/payments/${id}/timeline`),
      await get(system, `/refunds/${id}`),
      await capture(system, id, {}, { key }),
      await cancel(system, id, {}, { key }),
      await refund(system, id, {}, { key }),
    ]) {
      expect([answer.status, answer.body.code]).toEqual([404, 'not_found']);
      expect(answer.headers['content-type']).toBe('application/problem+json; charset=utf-8');
    }
    await nothingHappened(key);
  });

  it('a path that is no percent-encoding is 400', async () => {
    for (const path of ['/payments/%zz', '/refunds/%E0%A4', '/payments/%/timeline']) {
      expect((await get(system, path).expect(400)).body.code).toBe('validation_failed');
    }
  });

  it('query parameters, also repeated ones, on a money route', async () => {
    const key = randomUUID();
    for (const query of ['?amount=1.00', '?amount=1.00&amount=2.00', '?__proto__=1', '?a[]=1']) {
      const answer = await send(system, `/payments/${captured.id}/refunds${query}`, {}, { key });
      expect([answer.status, answer.body.code], query).toEqual([400, 'validation_failed']);
    }
    await nothingHappened(key);
  });

  it('no key, an empty one, two of them', async () => {
    const path = `/payments/${captured.id}/refunds`;
    const base = () => request(system.first.url).post(path).set('authorization', `Bearer ${system.api_key}`);
    expect((await base().send({})).body.code).toBe('idempotency_key_missing');
    expect((await base().set('idempotency-key', '').send({})).body.code).toBe('idempotency_key_invalid');
    expect((await base().set('idempotency-key', 'a"b').send({})).body.code).toBe('idempotency_key_invalid');
    expect((await rows(system, captured.id)).operations).toEqual([]);
  });

  it('a card number in the reason of a refund is refused and repeated nowhere', async () => {
    const key = randomUUID();
    const refused = await refund(system, captured.id, { reason: 'card 4242 4242 4242 4242' }, { key }).expect(400);
    expect(refused.body).toMatchObject({ code: 'card_number_rejected', errors: [{ path: '/reason' }] });
    expect(refused.text).not.toMatch(/4242/);
    expect(JSON.stringify(system.first.log)).not.toMatch(/4242 ?4242/);
    await nothingHappened(key);
  });
});

describe('a problem says what to do', () => {
  it('in progress: where to look, and when to come back', async () => {
    const key = `refund/${randomUUID()}`;
    const paused = system.first.holdAt('begun');
    const running = refund(system, captured.id, {}, { key }).then((answer) => answer);
    await paused.reached;
    const refused = await refund(system, captured.id, {}, { key }).expect(409);
    const status_url = `/idempotency-keys/${encodeURIComponent(key)}`;
    expect(refused.body).toMatchObject({ code: 'idempotency_key_in_progress', status_url });
    expect(refused.headers.link).toBe(`<${status_url}>; rel="status"`);
    const wait_s = Number(refused.headers['retry-after']);
    expect(wait_s).toBeGreaterThanOrEqual(1);
    expect(wait_s).toBeLessThanOrEqual(12);
    expect((await get(system, status_url).expect(200)).body).toMatchObject({
      key,
      kind: 'refund',
      state: 'in_progress',
    });
    paused.release();
    expect((await running).status).toBe(201);
  });

  it('more than remains: how much that is, in the currency', async () => {
    await refund(system, captured.id, { amount: '3.50' }).expect(201);
    const refused = await refund(system, captured.id, { amount: '6.51' }).expect(409);
    expect(refused.body).toMatchObject({
      type: '/problems/amount_exceeds_remaining',
      code: 'amount_exceeds_remaining',
      remaining: '6.50',
      currency: 'EUR',
      payment_id: captured.id,
      detail: expect.stringContaining('6.50 EUR'),
    });
    await refund(system, captured.id, { amount: refused.body.remaining }).expect(201);
    expect(await moved(system, captured)).toEqual(['charge 1000', 'refund 350', 'refund 650']);
  });

  it('the state does not allow it: which state that is', async () => {
    const refused = await refund(system, held.id, { amount: '1.00' }).expect(409);
    expect(refused.body).toMatchObject({
      code: 'invalid_payment_state',
      payment_status: 'authorized',
      payment_id: held.id,
      detail: expect.stringContaining('authorized'),
    });
    expect(() => Problem.parse(refused.body)).not.toThrow();
  });

  it('every one of them is a page, too', async () => {
    const answers = [
      await refund(system, held.id, {}).expect(409),
      await capture(system, held.id, { amount: '11.00' }).expect(409),
      await get(system, `/payments/${randomUUID()}`).expect(404),
      await refund(system, captured.id, { amount: '0' }).expect(400),
    ];
    for (const { body, headers } of answers) {
      expect(() => Problem.parse(body)).not.toThrow();
      expect(body.request_id).toBe(headers['request-id']);
      expect(body.status).toBeGreaterThanOrEqual(400);
      await request(system.first.url).get(body.type).expect(200);
    }
  });

  it('a refusal that stays says so by its key: it is replayed, with when that ends', async () => {
    const key = randomUUID();
    const first = await capture(system, captured.id, {}, { key }).expect(409);
    const again = await capture(system, captured.id, {}, { key }).expect(409);
    expect(again.text).toBe(first.text);
    expect(again.headers).toMatchObject({
      'idempotent-replayed': 'true',
      'content-type': 'application/problem+json; charset=utf-8',
      'idempotency-key-expires': first.headers['idempotency-key-expires'],
    });
    expect(Date.parse(again.headers['idempotency-key-expires']!)).toBeGreaterThan(Date.now());
  });
});

it('a charge of another command under a name that is taken says which payment it is', async () => {
  const body = newCharge();
  const { id } = (await system.charge(body).expect(201)).body;
  const refused = await system.charge({ ...body, amount: '11.00' }).expect(409);
  expect(refused.body).toMatchObject({ code: 'external_payment_id_taken', payment_id: id });
});
