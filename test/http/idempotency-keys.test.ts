import { randomUUID } from 'node:crypto';
import type { Response } from 'supertest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { KeyStatus } from '../../src/contract/schemas.js';
import { newCharge, TestSystem } from '../support/app.js';
import { cancel, capture, get, made, refund, untilFinal } from '../support/follow-up.js';
import { checkFollowUps } from '../support/follow-up-invariants.js';
import { checkInvariants } from '../support/invariants.js';

const WAIT = { timeout: 30_000, interval: 50 };

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

async function status(key: string, api_key = system.api_key): Promise<Response['body']> {
  const { body } = await get(system, `/idempotency-keys/${encodeURIComponent(key)}`, api_key).expect(200);
  expect(() => KeyStatus.parse(body)).not.toThrow();
  return body;
}

async function isUnknown(key: string, api_key = system.api_key): Promise<void> {
  const answer = await get(system, `/idempotency-keys/${encodeURIComponent(key)}`, api_key).expect(404);
  expect(answer.body.code).toBe('not_found');
}

/** A second charge after a decline: it is reserved first and begun afterwards. */
async function payAgain() {
  const body = newCharge({ payment_method: 'pm_decline_card_declined' });
  await system.charge(body).expect(201);
  return { ...body, payment_method: 'pm_success' };
}

const paymentAt = (id: string, state: string) => ({ type: 'payment', id, href: `/payments/${id}`, status: state });

describe('in progress', () => {
  it('reserved, with nothing begun: since when, until when the lease, and no resource', async () => {
    const key = randomUUID();
    const body = await payAgain();
    const paused = system.first.holdAt('reserved');
    const charging = system.charge(body, { key }).then((answer) => answer);
    await paused.reached;
    const told = await status(key);
    expect(told).toEqual({
      key,
      kind: 'charge',
      state: 'in_progress',
      created_at: expect.any(String),
      lease_until: expect.any(String),
      needs_review: false,
      resource: null,
      expires_at: null,
    });
    expect(Date.parse(told.lease_until) - Date.parse(told.created_at)).toBeGreaterThan(5_000);
    paused.release();
    expect((await charging).status).toBe(201);
  });

  it('begun: the payment as it is', async () => {
    const key = randomUUID();
    const body = newCharge();
    const paused = system.first.holdAt('begun');
    const charging = system.charge(body, { key }).then((answer) => answer);
    await paused.reached;
    const { resource } = await status(key);
    expect(resource).toMatchObject({ type: 'payment', status: 'processing' });
    const found = await get(system, `/payments?external_payment_id=${body.external_payment_id}`);
    expect(found.body.data).toMatchObject([{ id: resource.id, status: 'processing' }]);
    expect((await get(system, resource.href).expect(200)).body.id).toBe(resource.id);
    paused.release();
    expect((await charging).body.id).toBe(resource.id);
  });

  it('a second request is told where to look', async () => {
    const key = `a/%41 ${randomUUID()}`;
    const body = newCharge();
    const paused = system.first.holdAt('begun');
    const charging = system.charge(body, { key }).then((answer) => answer);
    await paused.reached;
    const refused = await system.charge(body, { key }).expect(409);
    expect(refused.body.code).toBe('idempotency_key_in_progress');
    expect(refused.body.status_url).toBe(`/idempotency-keys/${encodeURIComponent(key)}`);
    expect(refused.headers.link).toBe(`<${refused.body.status_url}>; rel="status"`);
    expect((await get(system, refused.body.status_url).expect(200)).body).toMatchObject({ key, state: 'in_progress' });
    paused.release();
    await charging;
  });
});

describe('open', () => {
  it('the outcome is not known: no lease, nothing expires; the payment as it is', async () => {
    const key = randomUUID();
    const body = newCharge({ payment_method: 'pm_async_success_600000' });
    const answer = await system.charge(body, { key }).expect(202);
    expect(await status(key)).toMatchObject({
      state: 'open',
      lease_until: null,
      expires_at: null,
      needs_review: false,
      resource: paymentAt(answer.body.id, 'processing'),
    });
    // Another key that waits for the same charge.
    const second = randomUUID();
    await system.charge(body, { key: second }).expect(202);
    expect(await status(second)).toMatchObject({ state: 'open', resource: paymentAt(answer.body.id, 'processing') });

    await system.simulator.complete(answer.body.provider_payment_id, 'succeeded');
    const jobs = system.first.startJobs();
    await untilFinal(() => system.charge(body, { key }));
    await jobs.stop();
    for (const each of [key, second]) {
      expect(await status(each)).toMatchObject({
        state: 'done',
        expires_at: expect.any(String),
        resource: paymentAt(answer.body.id, 'succeeded'),
      });
    }
  });

  it('says that an operator has to settle it', async () => {
    const key = randomUUID();
    const answer = await system.charge(newCharge({ payment_method: 'pm_late_commit_600000' }), { key }).expect(202);
    const record = await system.record(key);
    await system.query('update operation set needs_review_at = now(), check_at = null where id = $1', [
      record!.operation_id,
    ]);
    expect(await status(key)).toMatchObject({
      state: 'open',
      needs_review: true,
      resource: paymentAt(answer.body.id, 'processing'),
    });
  });

  it('of a refund, a capture and a cancel', async () => {
    const payment = await made(system);
    await system.simulator.next(payment.provider_payment_id, 'refund', 'pm_async_success_600000');
    const key = randomUUID();
    const pending = await refund(system, payment.id, { amount: '1.00' }, { key }).expect(202);
    const { id } = pending.body;
    expect(await status(key)).toMatchObject({
      kind: 'refund',
      state: 'open',
      resource: { type: 'refund', id, href: `/refunds/${id}`, status: 'processing' },
    });
    for (const [kind, ask] of Object.entries({ capture, cancel })) {
      const held = await made(system, { capture: 'manual' });
      await system.simulator.next(held.provider_payment_id, kind as 'capture', 'pm_async_success_600000');
      const its = randomUUID();
      await ask(system, held.id, undefined, { key: its }).expect(202);
      expect(await status(its)).toMatchObject({ kind, state: 'open', resource: paymentAt(held.id, 'authorized') });
    }
  });
});

describe('done', () => {
  it('the resource with its status as it is now, not as it was answered', async () => {
    const key = randomUUID();
    const payment = await made(system, { capture: 'manual' }, { key });
    const told = await status(key);
    expect(told).toMatchObject({ kind: 'charge', state: 'done', resource: paymentAt(payment.id, 'authorized') });
    const kept_ms = Date.parse(told.expires_at) - Date.now();
    expect(kept_ms / 3_600_000).toBeGreaterThan(71.5);
    expect(kept_ms / 3_600_000).toBeLessThanOrEqual(72);
    await cancel(system, payment.id).expect(200);
    expect((await status(key)).resource).toEqual(paymentAt(payment.id, 'canceled'));
  });

  it('a decline, a refusal, and what was found', async () => {
    const declined = randomUUID();
    const payment = await made(system, { payment_method: 'pm_decline_card_declined' }, { key: declined });
    expect(await status(declined)).toMatchObject({ state: 'done', resource: paymentAt(payment.id, 'failed') });

    const refused = randomUUID();
    await capture(system, payment.id, undefined, { key: refused }).expect(409);
    expect(await status(refused)).toMatchObject({
      kind: 'capture',
      state: 'done',
      resource: paymentAt(payment.id, 'failed'),
    });
    const nothing = randomUUID();
    await refund(system, payment.id, {}, { key: nothing }).expect(409);
    expect(await status(nothing)).toMatchObject({ kind: 'refund', state: 'done', resource: null });

    const paid = await made(system);
    const again = randomUUID();
    await system.charge(paid.body, { key: again }).expect(200);
    expect(await status(again)).toMatchObject({ state: 'done', resource: paymentAt(paid.id, 'succeeded') });
  });

  it('a refund', async () => {
    const payment = await made(system);
    const key = randomUUID();
    const given = await refund(system, payment.id, {}, { key }).expect(201);
    const resource = { type: 'refund', id: given.body.id, href: `/refunds/${given.body.id}`, status: 'succeeded' };
    expect(await status(key)).toMatchObject({ kind: 'refund', state: 'done', resource });
  });

  it('an external id that another client has taken tells nothing of it', async () => {
    const other = await system.client(`taker-${randomUUID()}`);
    const payment = await made(system, {}, { api_key: other });
    const key = randomUUID();
    await system.charge(payment.body, { key }).expect(409);
    expect(await status(key)).toMatchObject({ state: 'done', resource: null });
  });
});

describe('gone', () => {
  it('past its retention, swept or not; the payment is still found by its external id', async () => {
    const key = randomUUID();
    const payment = await made(system, {}, { key });
    await system.expireRecord(key);
    expect(await system.record(key)).toBeDefined();
    await isUnknown(key);
    const found = await get(system, `/payments?external_payment_id=${payment.external_payment_id}`).expect(200);
    expect(found.body.data).toMatchObject([{ id: payment.id, status: 'succeeded' }]);
  });

  it('or never there: unknown, refused before it was looked at, refused for the moment', async () => {
    await isUnknown(randomUUID());
    const invalid = randomUUID();
    await system.charge(newCharge({ amount: '0' }), { key: invalid }).expect(400);
    await isUnknown(invalid);
    const nowhere = randomUUID();
    await capture(system, randomUUID(), undefined, { key: nowhere }).expect(404);
    await isUnknown(nowhere);
  });

  it('another client’s', async () => {
    const key = randomUUID();
    await made(system, {}, { key });
    await isUnknown(key, await system.client('other', ['payments:read']));
    // Also for an admin: keys are the caller's own.
    const admin = await system.client('admin', ['admin']);
    await isUnknown(key, admin);
    const own = await made(system, {}, { key, api_key: await system.client('second') });
    expect((await status(key)).resource.id).not.toBe(own.id);
  });
});

describe('keys of every form', () => {
  const forms: [string, string][] = [
    ['255 characters', 'k'.repeat(255)],
    ['255 characters that all have to be encoded', '%'.repeat(255)],
    ['a slash', 'orders/17/pay'],
    ['nothing but slashes', '///'],
    ['a percent sign', '100%'],
    ['what looks encoded already', '%2F%00%zz'],
    ['dots', '..'],
    ['a question mark and a hash', 'a?b#c&d=e'],
    ['a backslash and a semicolon', String.raw`a\b;c`],
    ['spaces inside', 'a b  c'],
    ['a plus', 'a+b'],
  ];
  it.each(forms)('%s', async (_name, key) => {
    const payment = await made(system, {}, { key });
    expect(await status(key)).toMatchObject({ key, state: 'done', resource: paymentAt(payment.id, 'succeeded') });
    await isUnknown(key.slice(0, -1) || 'x');
  });

  it('quotes inside, which only the quoted form can say', async () => {
    const key = String.raw`say "hello" \ ${randomUUID()}`;
    const quoted = `"${key.replace(/["\\]/g, String.raw`\$&`)}"`;
    const payment = await made(system, {}, { key: quoted });
    for (const asked of [key, quoted]) {
      const resource = paymentAt(payment.id, 'succeeded');
      expect(await status(asked)).toMatchObject({ key, state: 'done', resource });
    }
    await isUnknown(key.replaceAll('"', ''));
  });

  it('a quoted key and the bare one are the same, also when asked for', async () => {
    const bare = randomUUID();
    const payment = await made(system, {}, { key: `"${bare}"` });
    for (const asked of [bare, `"${bare}"`]) {
      expect(await status(asked)).toMatchObject({ key: bare, resource: { id: payment.id } });
    }
    await isUnknown(`"${bare}`);
  });

  it('a key that has quotes around it comes before the bare one', async () => {
    const bare = randomUUID();
    await made(system, {}, { key: bare });
    const withQuotes = await made(system, {}, { key: String.raw`"\"${bare}\""` });
    expect((await status(`"${bare}"`)).resource.id).toBe(withQuotes.id);
  });

  it('what can be no key is not found, or too long, and never an error of ours', async () => {
    for (const [path, expected] of [
      ['%00', 404],
      ['a%00b', 404],
      ['%C3%BC', 404],
      ['x'.repeat(799), 404],
      ['x'.repeat(5000), 414],
      ['%zz', 400],
      ['%E0%A4', 400],
    ] as const) {
      const answer = await get(system, `/idempotency-keys/${path}`);
      expect(answer.status, path.slice(0, 20)).toBe(expected);
      expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/);
    }
    expect((await get(system, '/idempotency-keys/')).status).toBe(404);
  });
});

it('a released reservation is unknown again: nothing has happened', async () => {
  const key = randomUUID();
  const body = await payAgain();
  const paused = system.first.holdAt('reserved');
  const charging = system.charge(body, { key }).then((answer) => answer);
  await paused.reached;
  await system.expireLease(key);
  const jobs = system.first.startJobs();
  await vi.waitFor(() => isUnknown(key), WAIT);
  await jobs.stop();
  paused.release();
  expect((await charging).status).toBe(409);
  expect((await system.rowsOf(body.external_payment_id)).operations).toHaveLength(1);
  expect(await system.movements(body.external_payment_id)).toEqual([]);
  // The key is free: a retry runs.
  await system.charge(body, { key }).expect(201);
});
