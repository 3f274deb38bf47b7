import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { newCharge, type TestInstance, TestSystem } from '../support/app.js';
import { cancel, capture, made, refund } from '../support/follow-up.js';
import { checkFollowUps } from '../support/follow-up-invariants.js';
import { checkInvariants } from '../support/invariants.js';
import { atProvider, counted, deliver, eventRow, heard, newEventId, stateOf, told, WAIT } from '../support/webhooks.js';

let system: TestSystem;
let other: TestInstance;
beforeAll(async () => {
  system = await TestSystem.start({ webhooks: true });
  other = await system.join();
});
afterAll(() =>
  system.close(async () => {
    await checkInvariants(system);
    await checkFollowUps(system);
  }),
);

async function charged(payment_method: string, more: object = {}) {
  const key = randomUUID();
  const body = newCharge({ payment_method, ...more });
  const answer = await system.charge(body, { key });
  const { id, external_payment_id, provider_payment_id } = answer.body;
  return { key, answer, payment: { id, external_payment_id, provider_payment_id, body } };
}

describe('one event', () => {
  it('of what is known already, delivered 20 times at once over two instances, changes nothing', async () => {
    const { payment } = await charged('pm_requires_action');
    await heard(system, payment);
    await system.simulator.complete(payment.provider_payment_id, 'succeeded');
    const [, success] = await heard(system, payment, 2);
    await refund(system, payment.id, { amount: '1.00' }).expect(201);
    await heard(system, payment, 3);
    const before = await stateOf(system, payment);
    const event_id = newEventId();
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        deliver(system, success!.body, { event_id, instance: n % 2 === 0 ? system.first : other }),
      ),
    );
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(await stateOf(system, payment)).toEqual(before);
    expect(before).toMatchObject({
      status: 'succeeded',
      operations: ['charge succeeded 1000', 'refund succeeded 100'],
      events: ['PaymentRequiresAction', 'PaymentSucceeded', 'RefundSucceeded'],
      movements: ['charge 1000', 'refund 100'],
    });
  });

  it('delivered 20 times at once, over two instances, has one effect and makes one outbox event', async () => {
    const { payment } = await charged('pm_requires_action');
    await heard(system, payment);
    const [first, second] = [system.first, other];
    const duplicates = (await counted(first, 'duplicate')) + (await counted(second, 'duplicate'));
    const applied = (await counted(first, 'applied')) + (await counted(second, 'applied'));
    const failed = told('failed', await atProvider(system, payment));
    const event_id = newEventId();
    const statuses = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        deliver(system, failed, { event_id, instance: n % 2 === 0 ? first : second }),
      ),
    );
    expect(statuses.map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'failed',
      operations: ['charge failed 1000'],
      events: ['PaymentRequiresAction', 'PaymentFailed'],
      anomalies: [],
      movements: [],
    });
    expect((await counted(first, 'applied')) + (await counted(second, 'applied'))).toBe(applied + 1);
    expect((await counted(first, 'duplicate')) + (await counted(second, 'duplicate'))).toBe(duplicates + 19);
    const [history] = await system.query<{ moves: number }>(
      'select jsonb_array_length(history) as moves from payment where id = $1',
      [payment.id],
    );
    expect(history?.moves).toBe(2);
  });

  it('sent again 30 times at once by the provider does nothing more', async () => {
    const { payment } = await charged('pm_success');
    const [event] = await heard(system, payment);
    const before = await stateOf(system, payment);
    expect(await system.simulator.resend(event!.id, 30)).toEqual(Array(30).fill(200));
    expect(await stateOf(system, payment)).toEqual(before);
    expect(before.events).toEqual(['PaymentSucceeded']);
  });
});

describe('two event ids that say the same', () => {
  it('make one transition: six deliveries of two events', async () => {
    const { payment, answer } = await charged('pm_webhook_duplicates');
    expect(answer.status).toBe(201);
    const events = await heard(system, payment, 2);
    expect(new Set(events.map(({ id }) => id)).size).toBe(2);
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      operations: ['charge succeeded 1000'],
      events: ['PaymentSucceeded'],
      anomalies: [],
      movements: ['charge 1000'],
    });
  });

  it('at once, over two instances', async () => {
    const { payment } = await charged('pm_requires_action');
    await heard(system, payment);
    const failed = told('failed', await atProvider(system, payment));
    const ids = Array.from({ length: 10 }, newEventId);
    const countBoth = async () => (await counted(system.first, 'no_change')) + (await counted(other, 'no_change'));
    const before = await countBoth();
    await Promise.all(
      ids.map((event_id, n) => deliver(system, failed, { event_id, instance: n % 2 === 0 ? system.first : other })),
    );
    const outcomes = await Promise.all(ids.map(async (id) => (await eventRow(system, id))?.outcome));
    expect(outcomes.filter((outcome) => outcome === 'applied')).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome === 'no_change')).toHaveLength(9);
    expect(await countBoth()).toBe(before + 9);
    expect((await stateOf(system, payment)).events).toEqual(['PaymentRequiresAction', 'PaymentFailed']);
  });
});

describe('a webhook that is faster than the answer', () => {
  it.each([
    ['succeeded', 'pm_webhook_first', {}, 'charge succeeded 1000', ['charge 1000']],
    ['failed', 'pm_webhook_first+pm_decline_card_declined', {}, 'charge failed 1000', []],
    ['requires_action', 'pm_webhook_first+pm_requires_action', {}, 'charge requires_action 1000', []],
    ['authorized', 'pm_webhook_first', { capture: 'manual' }, 'charge authorized 1000', ['authorization 1000']],
  ])(
    '%s: the key’s answer is stored once, and the request answers with it',
    async (status, method, more, row, moves) => {
      const { key, answer, payment } = await charged(method, more);
      expect(answer.status).toBe(201);
      expect(answer.headers['idempotent-replayed']).toBeUndefined();
      expect(answer.headers.location).toBe(`/payments/${payment.id}`);
      expect(answer.body).toMatchObject({ status });
      const record = await system.record(key);
      expect(record).toMatchObject({ state: 'done', http_status: 201, body: answer.text });
      const again = await system.charge(payment.body, { key, instance: other });
      expect(again.text).toBe(answer.text);
      expect(again.headers['idempotent-replayed']).toBe('true');
      const state = await stateOf(system, payment);
      expect(state).toMatchObject({ status, operations: [row], anomalies: [], movements: moves });
      expect(state.events).toHaveLength(1);
      const [cause] = await system.query<{ cause: string }>(
        `select history -> 0 ->> 'cause' as cause from payment where id = $1`,
        [payment.id],
      );
      expect(cause?.cause).toBe('webhook');
    },
  );

  it('and answers who waits for it with Prefer: wait, in another instance too', async () => {
    const key = randomUUID();
    const body = newCharge({ payment_method: 'pm_webhook_first+pm_slow_answer_1000' });
    const asking = system.charge(body, { key });
    const first = asking.then((answer) => answer);
    await vi.waitFor(async () => expect(await system.record(key)).toBeDefined(), WAIT);
    const waited = await system.charge(body, { key, instance: other, wait_s: 20 });
    expect(waited.status).toBe(201);
    expect(waited.text).toBe((await first).text);
  });

  it.each([
    ['capture', { capture: 'manual' }, 'pm_success', 200, 'succeeded', ['authorization 1000', 'capture 1000']],
    ['cancel', { capture: 'manual' }, 'pm_success', 200, 'canceled', ['authorization 1000', 'cancel 1000']],
    ['cancel of an open action', {}, 'pm_requires_action', 200, 'canceled', []],
  ])('a %s is ended by it, with the right stored answer', async (name, more, payment_method, status, end, moves) => {
    const payment = await made(system, { ...more, payment_method });
    await heard(system, payment);
    const [operation] = name.split(' ') as ['capture' | 'cancel'];
    await system.simulator.next(payment.provider_payment_id, operation, 'pm_webhook_first');
    const key = randomUUID();
    const send = operation === 'capture' ? capture : cancel;
    const answer = await send(system, payment.id, undefined, { key });
    expect(answer.status).toBe(status);
    expect(answer.body).toMatchObject({ id: payment.id, status: end });
    expect(await system.record(key)).toMatchObject({ state: 'done', http_status: status, body: answer.text });
    expect((await send(system, payment.id, undefined, { key, instance: other })).text).toBe(answer.text);
    const state = await stateOf(system, payment);
    expect(state).toMatchObject({ status: end, anomalies: [], movements: moves });
    expect(state.operations[1]).toMatch(new RegExp(`^${operation} succeeded `));
    expect(state.events).toHaveLength(2);
  });

  it('a refund’s makes no second row: the request stands just before its commit meanwhile', async () => {
    const payment = await made(system);
    await heard(system, payment);
    const held = other.holdAt('answered');
    const key = randomUUID();
    const asking = refund(system, payment.id, { amount: '4.00' }, { key, instance: other }).then((answer) => answer);
    await held.reached;
    await heard(system, payment, 2);
    const told = await stateOf(system, payment);
    expect(told).toMatchObject({
      refunded: 400,
      reserved: 400,
      operations: ['charge succeeded 1000', 'refund succeeded 400'],
      events: ['PaymentSucceeded', 'RefundSucceeded'],
      movements: ['charge 1000', 'refund 400'],
    });
    held.release();
    const answer = await asking;
    expect(answer.status).toBe(201);
    expect(answer.body).toMatchObject({ status: 'succeeded', amount: '4.00' });
    expect(await stateOf(system, payment)).toEqual(told);
    expect(await system.record(key)).toMatchObject({ state: 'done', http_status: 201, body: answer.text });
  });

  it('so does one that failed: the amount is free, and the answer says so', async () => {
    const payment = await made(system);
    await heard(system, payment);
    await system.simulator.next(payment.provider_payment_id, 'refund', 'pm_webhook_first+pm_decline_card_declined');
    const answer = await refund(system, payment.id, { amount: '4.00' }).expect(201);
    expect(answer.body).toMatchObject({ status: 'failed', failure: { code: 'card_declined' } });
    expect(await stateOf(system, payment)).toMatchObject({
      refunded: 0,
      reserved: 0,
      operations: ['charge succeeded 1000', 'refund failed 400'],
      events: ['PaymentSucceeded', 'RefundFailed'],
      movements: ['charge 1000'],
    });
  });
});

describe('a burst', () => {
  it('of 500 events of 50 payments is taken whole, over two instances, in bounded time', async () => {
    const payments = await Promise.all(
      Array.from({ length: 50 }, () => made(system, { payment_method: 'pm_requires_action' })),
    );
    for (const payment of payments) await heard(system, payment);
    const views = await Promise.all(payments.map((payment) => atProvider(system, payment)));
    // Of each payment the decline under five ids, each of them twice.
    const deliveries = views.flatMap((view) =>
      Array.from({ length: 5 }, newEventId).flatMap((event_id) => [event_id, event_id].map((id) => ({ id, view }))),
    );
    expect(deliveries).toHaveLength(500);
    const started = performance.now();
    const answers = await Promise.all(
      deliveries.map(({ id, view }, n) =>
        deliver(system, told('failed', view), { event_id: id, instance: n % 3 === 0 ? other : system.first }),
      ),
    );
    // Providers give up waiting after 10 to 20 seconds; this is for a machine that is busy with other things.
    expect(performance.now() - started).toBeLessThan(30_000);
    const [refused, taken] = [
      answers.filter(({ status }) => status === 503),
      answers.filter(({ status }) => status === 200),
    ];
    expect(refused.length + taken.length).toBe(500);
    expect(refused).toEqual([]);
    for (const payment of payments) {
      expect(await stateOf(system, payment)).toMatchObject({
        status: 'failed',
        events: ['PaymentRequiresAction', 'PaymentFailed'],
        anomalies: [],
      });
    }
    const [kept] = await system.query<{ applied: number; no_change: number }>(
      `select count(*) filter (where outcome = 'applied')::int as applied, count(*) filter (where outcome = 'no_change')::int as no_change
       from provider_event where event_id = any($1::text[])`,
      [deliveries.map(({ id }) => id)],
    );
    expect(kept).toEqual({ applied: 50, no_change: 200 });
  }, 60_000);
});
