import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listParkedEvents } from '../../src/store/operator-lists.js';
import { keepEvent, recordFailure } from '../../src/store/provider-events.js';
import { type TestInstance, TestSystem } from '../support/app.js';
import { get, type Made, made } from '../support/follow-up.js';
import { atProvider, counted, deliver, eventRow, isMarked, newEventId, stateOf, told } from '../support/webhooks.js';

/** As often as it may fail before it is set aside. */
const FAILURES_MAX = 8;

let system: TestSystem;
let other: TestInstance;
beforeAll(async () => {
  system = await TestSystem.start();
  other = await system.join();
  // Makes the database refuse whatever changes a payment of this customer.
  await system.query(`
    create function refuse() returns trigger language plpgsql as $$
    begin raise exception 'poison for %', new.id using errcode = 'P0001'; end $$`);
  await system.query(`
    create trigger poison before update on payment for each row
    when (new.customer_id = 'poisoned') execute function refuse()`);
});
afterAll(() => system.close());

/** A payment that waits for its customer, with the event that would end it. */
async function open(): Promise<{ payment: Made; success: object; event_id: string }> {
  const payment = await made(system, { payment_method: 'pm_requires_action' });
  return { payment, success: told('succeeded', await atProvider(system, payment)), event_id: newEventId() };
}

async function poison(payment: Made): Promise<void> {
  await system.query('alter table payment disable trigger poison');
  await system.query(`update payment set customer_id = 'poisoned' where id = $1`, [payment.id]);
  await system.query('alter table payment enable trigger poison');
}
async function cure(payment: Made): Promise<void> {
  await system.query('alter table payment disable trigger poison');
  await system.query(`update payment set customer_id = 'cured' where id = $1`, [payment.id]);
  await system.query('alter table payment enable trigger poison');
}

describe('an event that can’t be applied', () => {
  it('is answered 5xx and leaves nothing behind; sent again when the database takes it, it is applied', async () => {
    const { payment, success, event_id } = await open();
    const before = await stateOf(system, payment);
    const failing = await counted(system.first, 'failing');
    await poison(payment);
    const refused = await deliver(system, success, { event_id });
    expect(refused.status).toBe(500);
    expect(refused.text).not.toContain('poison');
    expect(await isMarked(system, event_id)).toBe(false);
    expect(await stateOf(system, payment)).toEqual(before);
    expect(await eventRow(system, event_id)).toMatchObject({
      outcome: 'failing',
      failures: 1,
      last_error: `poison for ${payment.id}`,
      payment_id: payment.id,
      fact: { status: 'succeeded' },
    });
    expect(await counted(system.first, 'failing')).toBe(failing + 1);

    await cure(payment);
    expect((await deliver(system, success, { event_id })).status).toBe(200);
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      events: [...before.events, 'PaymentSucceeded'],
    });
    expect(await eventRow(system, event_id)).toMatchObject({ outcome: 'applied', failures: 1 });
  });

  it('is parked after 8 failures, over all instances: 200, shown to operators and in the timeline, never applied by halves', async () => {
    const { payment, success, event_id } = await open();
    const before = await stateOf(system, payment);
    const parked = (await counted(system.first, 'parked')) + (await counted(other, 'parked'));
    await poison(payment);
    const statuses: number[] = [];
    for (let n = 1; n <= FAILURES_MAX + 1; n += 1) {
      const instance = n % 2 === 0 ? system.first : other;
      statuses.push((await deliver(system, success, { event_id, instance })).status);
    }
    expect(statuses).toEqual([...Array<number>(FAILURES_MAX - 1).fill(500), 200, 200]);
    expect((await counted(system.first, 'parked')) + (await counted(other, 'parked'))).toBe(parked + 2);
    expect(await isMarked(system, event_id)).toBe(false);
    expect(await stateOf(system, payment)).toEqual(before);

    const shown = (await listParkedEvents(system.database.pool, 100)).find((event) => event.event_id === event_id);
    expect(shown).toMatchObject({
      provider: 'sandbox',
      type: 'payment.succeeded',
      failures: FAILURES_MAX + 1,
      last_error: `poison for ${payment.id}`,
    });
    const timeline = (await get(system, `/payments/${payment.id}/timeline`).expect(200)).body.data as object[];
    expect(timeline).toContainEqual(
      expect.objectContaining({
        type: 'provider_event',
        detail: expect.objectContaining({ event_id, outcome: 'parked' }),
      }),
    );

    // Whoever has removed the cause lets the provider send it once more.
    await cure(payment);
    expect((await deliver(system, success, { event_id })).status).toBe(200);
    expect((await stateOf(system, payment)).status).toBe('succeeded');
    expect(await eventRow(system, event_id)).toMatchObject({ outcome: 'applied' });
    expect((await listParkedEvents(system.database.pool, 100)).map((event) => event.event_id)).not.toContain(event_id);
  });

  it('stands in nobody’s way: events of other payments, and others of its own, are applied meanwhile', async () => {
    const bad = await open();
    await poison(bad.payment);
    for (let n = 0; n < 3; n += 1) await deliver(system, bad.success, { event_id: bad.event_id });
    const good = await open();
    expect((await deliver(system, good.success)).status).toBe(200);
    await cure(bad.payment);
    expect((await deliver(system, bad.success)).status).toBe(200);
    expect((await stateOf(system, bad.payment)).status).toBe('succeeded');
    // The news is no news any more: the same event changes nothing.
    expect((await deliver(system, bad.success, { event_id: bad.event_id })).status).toBe(200);
    expect(await eventRow(system, bad.event_id)).toMatchObject({ outcome: 'no_change', failures: 3 });
  });

  it('and is delivered twice at once: the failure of one does not hide what the other did', async () => {
    const event = { event_id: newEventId(), type: 'payment.succeeded', fact: null };
    const { pool } = system.database;
    const tx = await pool.connect();
    try {
      await keepEvent(tx, 'sandbox', event, { outcome: 'applied' });
    } finally {
      tx.release();
    }
    await recordFailure(pool, 'sandbox', event, { reason: 'too late', failures_max: FAILURES_MAX });
    expect(await eventRow(system, event.event_id)).toMatchObject({ outcome: 'applied', failures: 0 });
  });
});

describe('a database that is away', () => {
  it('is 503, nothing is counted against the event, and it is applied when it comes again', async () => {
    const { payment, success, event_id } = await open();
    const before = await counted(system.first, 'unavailable');
    const lock = await system.database.pool.connect();
    try {
      await lock.query('begin');
      await lock.query('lock table processed_event in access exclusive mode');
      const statuses = await Promise.all([1, 2, 3].map(() => deliver(system, success, { event_id })));
      for (const { status, headers } of statuses) {
        expect(status).toBe(503);
        expect(headers.get('retry-after')).toBeTruthy();
      }
    } finally {
      await lock.query('rollback');
      lock.release();
    }
    expect(await counted(system.first, 'unavailable')).toBe(before + 3);
    expect(await eventRow(system, event_id)).toBeUndefined();
    expect((await deliver(system, success, { event_id })).status).toBe(200);
    expect((await stateOf(system, payment)).status).toBe('succeeded');
  });
});

describe('a signed event that can’t be read', () => {
  it.each([
    ['no JSON', '{"type": "payment.succeeded"'],
    ['no JSON at all', 'hello'],
    ['an empty body', ''],
    ['no UTF-8', Buffer.from([0x7b, 0xff, 0xfe, 0x7d])],
    ['another shape', { type: 'payment.succeeded', timestamp: new Date().toISOString(), data: { payment: { id: 7 } } }],
    ['no time', { type: 'payment.succeeded', timestamp: 'yesterday', data: {} }],
    ['no object', [1, 2, 3]],
  ])('(%s) is answered 500, and parked after 8 times', async (_name, body) => {
    const event_id = newEventId();
    const failing = await counted(system.first, 'failing');
    const statuses: number[] = [];
    for (let n = 1; n <= FAILURES_MAX; n += 1) statuses.push((await deliver(system, body, { event_id })).status);
    expect(statuses).toEqual([...Array<number>(FAILURES_MAX - 1).fill(500), 200]);
    expect(await eventRow(system, event_id)).toMatchObject({
      type: 'unreadable',
      outcome: 'parked',
      failures: 8,
      fact: null,
    });
    expect((await eventRow(system, event_id))?.last_error).toMatch(/\w/);
    expect((await listParkedEvents(system.database.pool, 100)).map((event) => event.event_id)).toContain(event_id);
    expect(await counted(system.first, 'failing')).toBe(failing + FAILURES_MAX - 1);
    expect(await isMarked(system, event_id)).toBe(false);
  });

  it('is applied after all once it can be read: after an upgrade, say', async () => {
    const { payment, success, event_id } = await open();
    expect((await deliver(system, 'unreadable', { event_id })).status).toBe(500);
    expect((await deliver(system, success, { event_id })).status).toBe(200);
    expect((await stateOf(system, payment)).status).toBe('succeeded');
    expect(await eventRow(system, event_id)).toMatchObject({ type: 'payment.succeeded', outcome: 'applied' });
  });

  it('whose words the database can’t hold is parked like any other', async () => {
    const { payment } = await open();
    const view = await atProvider(system, payment);
    const charge = await made(system);
    const event_id = newEventId();
    // A NUL is fine in JSON; PostgreSQL has no place for it.
    const refund = {
      id: 'sbx_ref_\u0000\ud800',
      status: 'succeeded',
      amount_minor: 100,
      reference: null,
      failure_code: null,
    };
    const whole = { ...refund, payment_id: charge.provider_payment_id, currency: 'EUR' };
    const body = {
      type: 'refund.succeeded',
      timestamp: new Date().toISOString(),
      data: { payment: { ...view, metadata: {} }, refund: whole },
    };
    for (let n = 1; n < FAILURES_MAX; n += 1) expect((await deliver(system, body, { event_id })).status).toBe(500);
    expect((await deliver(system, body, { event_id })).status).toBe(200);
    expect(await eventRow(system, event_id)).toMatchObject({ outcome: 'parked', payment_id: charge.id });
  });

  it('of a provider whose notifications carry no id in a header goes by its body', async () => {
    const nameless = await system.join({
      wrapProvider: (provider) => ({
        ...provider,
        parseWebhook() {
          throw new Error('signed, and yet no event');
        },
      }),
    });
    const headers = { 'webhook-id': undefined };
    const body = `something ${newEventId()}`;
    for (let n = 1; n < FAILURES_MAX; n += 1) {
      expect((await deliver(system, body, { instance: nameless, headers })).status).toBe(500);
    }
    expect((await deliver(system, `${body} else`, { instance: nameless, headers })).status).toBe(500);
    expect((await deliver(system, body, { instance: nameless, headers })).status).toBe(200);
    const kept = await system.query(
      `select event_id, outcome from provider_event where event_id like 'sha256-%' order by failures`,
    );
    expect(kept).toMatchObject([{ outcome: 'failing' }, { outcome: 'parked' }]);
  });
});
