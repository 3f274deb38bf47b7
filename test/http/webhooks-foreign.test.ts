import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { operationProviderKey } from '../../src/domain/command-hash.js';
import { ProviderError } from '../../src/providers/provider.js';
import { listOpenAnomalies } from '../../src/store/operator-lists.js';
import { INSTALLATION_ID, newCharge, referencesOf, TestSystem } from '../support/app.js';
import { get, type Made, made, refund } from '../support/follow-up.js';
import type { SimulatorPayment } from '../support/simulator.js';
import {
  atProvider,
  counted,
  deliver,
  eventRow,
  isMarked,
  newEventId,
  refundEvent,
  stateOf,
  told,
} from '../support/webhooks.js';

let system: TestSystem;
beforeAll(async () => {
  system = await TestSystem.start();
});
afterAll(() => system.close());

interface Taken {
  readonly outcome: string | undefined;
  readonly payment_id: string | null | undefined;
}

async function take(event: object, event_id = newEventId()): Promise<Taken> {
  expect((await deliver(system, event, { event_id })).status).toBe(200);
  const row = await eventRow(system, event_id);
  expect(await isMarked(system, event_id)).toBe(true);
  return { outcome: row?.outcome, payment_id: row?.payment_id };
}

/** A payment as the provider would tell of it that we never made: or that a lost database has forgotten. */
function unknownPayment(installation_id: string, external_payment_id = `order-${randomUUID()}`): SimulatorPayment {
  const [reference] = referencesOf(external_payment_id);
  return {
    id: `sbx_pay_${randomUUID()}`,
    reference: reference!,
    status: 'succeeded',
    amount_minor: 1000,
    amount_captured_minor: 1000,
    amount_refunded_minor: 0,
    currency: 'EUR',
    failure_code: null,
    next_action: null,
    metadata: { reference: reference!, installation_id, external_payment_id },
  };
}

async function anomaliesOf(reference: string) {
  const open = await listOpenAnomalies(system.database.pool, 1_000);
  return open.filter(({ detail }) => detail.reference === reference);
}

async function publishedUnder(key: string) {
  return system.query<{ type: string; sequence: number; data: Record<string, unknown> }>(
    'select type, sequence, data from outbox_event where key = $1 order by created_at',
    [key],
  );
}

/** An event with members of its payment, or of its refund, left out or replaced. */
function sent(event: object, at: 'payment' | 'refund', change: Record<string, unknown>): object {
  const whole = event as { readonly data: Readonly<Record<string, object>> };
  return { ...whole, data: { ...whole.data, [at]: { ...whole.data[at], ...change } } };
}

describe('an event that tells no more than it has to', () => {
  it('of a refund: what its payment tells may be left out', async () => {
    const payment = await made(system);
    const given = { id: `sbx_ref_${randomUUID()}`, reference: null, status: 'succeeded', amount_minor: 300 } as const;
    const event = refundEvent(await atProvider(system, payment), given);
    const short = sent(event, 'refund', { payment_id: undefined, currency: undefined, failure_code: undefined });
    expect(await take(short)).toEqual({ outcome: 'applied', payment_id: payment.id });
    expect(await take(event)).toEqual({ outcome: 'no_change', payment_id: payment.id });
    expect(await stateOf(system, payment)).toMatchObject({ refunded: 300, anomalies: [] });
  });

  it.each([
    ['none', undefined],
    ['null', null],
    ['of another form', { reference: { id: 1 }, installation_id: INSTALLATION_ID, tags: ['a'] }],
  ])('without metadata of ours (%s): not ours', async (_name, metadata) => {
    const payment = await made(system, { payment_method: 'pm_requires_action' });
    const event = sent(told('succeeded', await atProvider(system, payment)), 'payment', { metadata });
    expect(await take(event)).toEqual({ outcome: 'foreign', payment_id: null });
    expect(await stateOf(system, payment)).toMatchObject({ status: 'requires_action' });
  });
});

describe('an event of our installation for an operation that we do not have', () => {
  it('is acknowledged, an anomaly without a payment, listed, counted and published', async () => {
    const view = unknownPayment(INSTALLATION_ID);
    const before = await counted(system.first, 'unknown_operation');
    const event_id = newEventId();
    expect(await take(told('succeeded', view), event_id)).toEqual({ outcome: 'unknown_operation', payment_id: null });
    const detail = { provider: 'sandbox', event_id, reference: view.reference, provider_payment_id: view.id };
    expect(await anomaliesOf(view.reference)).toMatchObject([{ kind: 'unknown_operation', payment_id: null, detail }]);
    expect(await publishedUnder(view.reference)).toMatchObject([
      {
        type: 'PaymentAnomalyDetected.v1',
        data: { payment_id: null, payment: null, anomaly: { kind: 'unknown_operation', ...detail } },
      },
    ]);
    expect(await counted(system.first, 'unknown_operation')).toBe(before + 1);
    const metric = await system.first.metrics.registry.getSingleMetricAsString('oncepay_anomalies_total');
    expect(metric).toContain('oncepay_anomalies_total{kind="unknown_operation"}');
    expect(await system.rowsOf(view.metadata.external_payment_id!)).toMatchObject({ payments: [] });
  });

  it('is one anomaly, however many events tell of it', async () => {
    const view = unknownPayment(INSTALLATION_ID);
    for (const status of ['requires_action', 'failed', 'succeeded']) await take(told(status, view));
    expect(await anomaliesOf(view.reference)).toHaveLength(1);
    expect(await publishedUnder(view.reference)).toHaveLength(1);
    // Once it is resolved, news of it is news.
    await system.query(`update anomaly set resolved_at = now() where detail ->> 'reference' = $1`, [view.reference]);
    await take(told('failed', view));
    expect(await anomaliesOf(view.reference)).toHaveLength(1);
  });

  it('of a payment that we have is an anomaly of that payment, in its order of events', async () => {
    const payment = await made(system);
    const view = await atProvider(system, payment);
    const unknown = (n: number) =>
      operationProviderKey({
        installation_id: INSTALLATION_ID,
        client_id: 'default',
        provider: 'sandbox',
        external_payment_id: payment.external_payment_id,
        kind: 'refund',
        idempotency_key: `lost-${n}`,
      });
    for (const n of [1, 2]) {
      const given = { id: `sbx_ref_lost_${n}`, reference: unknown(n), status: 'succeeded', amount_minor: 100 };
      const event = refundEvent(view, given);
      expect(await take(event)).toEqual({ outcome: 'unknown_operation', payment_id: payment.id });
      expect(await take(event)).toEqual({ outcome: 'unknown_operation', payment_id: payment.id });
    }
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      refunded: 0,
      reserved: 0,
      operations: ['charge succeeded 1000'],
      anomalies: ['unknown_operation', 'unknown_operation'],
      events: ['PaymentSucceeded', 'PaymentAnomalyDetected', 'PaymentAnomalyDetected'],
    });
    const published = await publishedUnder(payment.id);
    const [row] = await system.query<{ version: number }>('select version from payment where id = $1', [payment.id]);
    const sequences = published.map(({ sequence }) => sequence);
    expect(new Set(sequences).size).toBe(3);
    expect(Math.max(...sequences)).toBe(row!.version);
    expect(published.at(-1)!.data).toMatchObject({
      payment_id: payment.id,
      payment: { id: payment.id, status: 'succeeded' },
      anomaly: { kind: 'unknown_operation', reference: unknown(2) },
    });
    const timeline = (await get(system, `/payments/${payment.id}/timeline`).expect(200)).body.data as object[];
    expect(timeline).toContainEqual(
      expect.objectContaining({
        type: 'anomaly',
        detail: expect.objectContaining({ kind: 'unknown_operation', reference: unknown(1) }),
      }),
    );
  });

  it('that a lost database has forgotten: the client’s retry finds the same money, and makes no second movement', async () => {
    const payment = await made(system);
    const key = randomUUID();
    const answer = await refund(system, payment.id, { amount: '4.00' }, { key }).expect(201);
    const view = await atProvider(system, payment);
    const [operation] = await system.query<{ provider_key: string }>(
      'select provider_key from operation where id = $1',
      [answer.body.id],
    );
    await forget(answer.body.id as string, key, payment);
    const given = { id: answer.body.provider_refund_id as string, reference: operation!.provider_key };
    const event = refundEvent(view, { ...given, status: 'succeeded', amount_minor: 400 });
    expect((await take(event)).outcome).toBe('unknown_operation');
    const again = await refund(system, payment.id, { amount: '4.00' }, { key }).expect(201);
    expect(again.body).toMatchObject({ status: 'succeeded', provider_refund_id: given.id });
    expect(await stateOf(system, payment)).toMatchObject({ refunded: 400, movements: ['charge 1000', 'refund 400'] });
  });
});

/** As if the database had been set back to before a refund. */
async function forget(operation_id: string, key: string, payment: Made): Promise<void> {
  await system.query('delete from idempotency_record where key = $1', [key]);
  await system.forget(['delete from operation where id = $1'], [operation_id]);
  await system.query('update payment set amount_refunded_minor = 0, refund_reserved_minor = 0 where id = $1', [
    payment.id,
  ]);
}

describe('an event that is not for us', () => {
  it('of another installation is acknowledged and counted, and changes nothing, whatever it names', async () => {
    const payment = await made(system, { payment_method: 'pm_requires_action' });
    const view = await atProvider(system, payment);
    const before = await stateOf(system, payment);
    const foreign = await counted(system.first, 'foreign');
    const elsewhere = { ...view, metadata: { ...view.metadata, installation_id: 'another-installation' } };
    expect(await take(told('succeeded', elsewhere))).toEqual({ outcome: 'foreign', payment_id: null });
    const given = { id: 'sbx_ref_elsewhere', reference: 'x', status: 'succeeded', amount_minor: 100 };
    expect(await take(refundEvent(elsewhere, given))).toEqual({ outcome: 'foreign', payment_id: null });
    expect(await take(told('succeeded', unknownPayment('another-installation')))).toEqual({
      outcome: 'foreign',
      payment_id: null,
    });
    expect(await stateOf(system, payment)).toEqual(before);
    expect(await counted(system.first, 'foreign')).toBe(foreign + 3);
  });

  it.each([
    ['none at all', {}],
    ['somebody else’s', { order: '4711' }],
    ['a part of ours', { reference: 'r', installation_id: INSTALLATION_ID }],
  ])('with metadata that is %s is acknowledged and counted', async (_name, metadata) => {
    const view = { ...unknownPayment(INSTALLATION_ID), metadata };
    expect(await take(told('succeeded', view))).toEqual({ outcome: 'foreign', payment_id: null });
    const open = await listOpenAnomalies(system.database.pool, 1_000);
    expect(open.filter(({ detail }) => detail.provider_payment_id === view.id)).toEqual([]);
  });

  it('of another mode (test on live), for which the adapter has no fact, is acknowledged and kept', async () => {
    const live = await system.join({
      wrapProvider: (provider) => ({
        ...provider,
        parseWebhook: (headers, body) => ({ ...provider.parseWebhook(headers, body), fact: null }),
      }),
    });
    const payment = await made(system, { payment_method: 'pm_requires_action' });
    const before = await stateOf(system, payment);
    const event_id = newEventId();
    const answer = await deliver(system, told('succeeded', await atProvider(system, payment)), {
      event_id,
      instance: live,
    });
    expect(answer.status).toBe(200);
    expect(await eventRow(system, event_id)).toMatchObject({ outcome: 'ignored', fact: null });
    expect(await counted(live, 'ignored')).toBe(1);
    expect(await stateOf(system, payment)).toEqual(before);
  });

  it('names a payment of ours by a name that another client has, too: it goes where its reference says', async () => {
    const mine = await made(system, { payment_method: 'pm_requires_action' });
    const view = await atProvider(system, mine);
    const theirs = newCharge({ payment_method: 'pm_requires_action' });
    const api_key = await system.client('somebody-else');
    const answer = await system.charge(theirs, { api_key }).expect(201);
    const mixed = { ...view, metadata: { ...view.metadata, external_payment_id: theirs.external_payment_id } };
    // The reference is not one of that payment; what the provider calls it is mine.
    expect(await take(told('succeeded', mixed))).toEqual({ outcome: 'applied', payment_id: mine.id });
    expect((await system.getPayment(answer.body.id, { api_key })).body.status).toBe('requires_action');
  });
});

describe('an event that has to be completed', () => {
  it('is, outside any transaction; while that fails it is 503, and in the end it is parked like others', async () => {
    let asked = 0;
    let isDown = true;
    const asking = await system.join({
      wrapProvider: (provider) => ({
        ...provider,
        completeEvent(event) {
          asked += 1;
          if (isDown) return Promise.reject(new ProviderError('unknown', 'timeout', 'no answer'));
          return Promise.resolve({ ...event, fact: event.fact && { ...event.fact, amount_minor: 300n } });
        },
      }),
    });
    const payment = await made(system);
    const view = { ...(await atProvider(system, payment)), metadata: {} };
    const event_id = newEventId();
    const event = refundEvent(view, { id: 'sbx_ref_incomplete', status: 'succeeded', amount_minor: 1 });
    const send = () => deliver(system, event, { event_id, instance: asking });
    for (let n = 1; n < 8; n += 1) {
      const answer = await send();
      expect(answer.status).toBe(503);
      expect(answer.headers.get('retry-after')).toBeTruthy();
    }
    expect((await send()).status).toBe(200);
    expect(await eventRow(system, event_id)).toMatchObject({ outcome: 'parked', last_error: 'no answer' });
    isDown = false;
    expect((await send()).status).toBe(200);
    expect(asked).toBe(9);
    expect(await stateOf(system, payment)).toMatchObject({ refunded: 300 });
    expect(await eventRow(system, event_id)).toMatchObject({ outcome: 'applied' });
  });
});
