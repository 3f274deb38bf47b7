import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { reconcileRound } from '../../src/jobs/reconciliation.js';
import { listOpenAnomalies } from '../../src/store/operator-lists.js';
import { newCharge, type TestInstance, TestSystem } from '../support/app.js';
import { cancel, capture, get, type Made, made, refund, rows } from '../support/follow-up.js';
import { SimulatorApi } from '../support/simulator-api.js';
import type { SimulatorPayment } from '../support/simulator.js';
import { atProvider, deliver, stateOf, told, WAIT } from '../support/webhooks.js';

let system: TestSystem;
let refunding: TestInstance;
beforeAll(async () => {
  system = await TestSystem.start({ env: { RECONCILE_INTERVAL_MS: '60000' } });
  refunding = await system.join({ env: { AUTO_REFUND_ANOMALIES: 'true' } });
});
afterAll(() => system.close());

const deliverTo = async (instance: TestInstance, event: object): Promise<void> => {
  expect((await deliver(system, event, { instance })).status).toBe(200);
};

/** What an anomaly leaves besides its row: a line in the timeline, in the operators' list, and a metric. */
async function expectShown(payment: Made, kind: string): Promise<void> {
  const open = await listOpenAnomalies(system.database.pool, 1_000);
  expect(open).toContainEqual(expect.objectContaining({ payment_id: payment.id, kind }));
  const timeline = (await get(system, `/payments/${payment.id}/timeline`).expect(200)).body.data as object[];
  expect(timeline).toContainEqual(
    expect.objectContaining({ type: 'anomaly', detail: expect.objectContaining({ kind }) }),
  );
  const metric = await system.first.metrics.registry.getSingleMetricAsString('oncepay_anomalies_total');
  expect(metric).toContain(`kind="${kind}"`);
}

/** Declined, paid again, and then the first try turns out to have taken the money all the same. */
async function paidAgain(more: object = {}): Promise<{ payment: Made; first: SimulatorPayment }> {
  const body = newCharge({ payment_method: 'pm_decline_card_declined', ...more });
  const declined = await system.charge(body).expect(201);
  const first = await new SimulatorApi(system.simulator.url).payment(declined.body.provider_payment_id);
  const paid = await system.charge({ ...body, payment_method: 'pm_success' }).expect(201);
  const { id, external_payment_id, provider_payment_id } = paid.body;
  return { payment: { id, external_payment_id, provider_payment_id, body }, first };
}

/** The refunds of a payment that nobody asked for. */
async function autoRefunds(payment: Made) {
  return (await rows(system, payment.id)).operations.filter(({ origin }) => origin === 'auto_refund');
}

describe('paid twice', () => {
  it('is an anomaly; the payment and its amounts stay as they were', async () => {
    const { payment, first } = await paidAgain();
    await deliverTo(system.first, told('succeeded', first));
    await deliverTo(system.first, told('succeeded', first));
    const state = await stateOf(system, payment);
    expect(state).toMatchObject({
      status: 'succeeded',
      captured: 1000,
      operations: ['charge succeeded 1000', 'charge succeeded 1000'],
      anomalies: ['paid_twice'],
    });
    expect(state.events.filter((type) => type === 'PaymentAnomalyDetected')).toHaveLength(1);
    await expectShown(payment, 'paid_twice');
    expect((await system.getPayment(payment.id)).body.provider_payment_id).toBe(payment.provider_payment_id);

    // The client's refund gives back what the payment itself has taken, not what was taken beside it.
    await refund(system, payment.id, { amount: '10.00' }).expect(201);
    const calls = await system.simulator.movements({ payment_id: payment.provider_payment_id });
    expect(calls.map(({ kind, amount_minor }) => `${kind} ${amount_minor}`)).toEqual(['charge 1000', 'refund 1000']);
    expect(await stateOf(system, payment)).toMatchObject({ refunded: 1000, reserved: 1000 });
  });

  it('with AUTO_REFUND_ANOMALIES is given back, once, and counts nowhere else', async () => {
    const { payment, first } = await paidAgain();
    await deliverTo(refunding, told('succeeded', first));
    await deliverTo(refunding, told('succeeded', first));
    const [refunded, ...more] = await autoRefunds(payment);
    expect(more).toEqual([]);
    expect(refunded).toMatchObject({ kind: 'refund', status: 'processing', amount_minor: 1000n });
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 1000,
      refunded: 0,
      reserved: 0,
      anomalies: ['paid_twice'],
    });
    // It is asked for on the excess charge, which the simulator has only declined: refused, and nothing else moves.
    await system.query('update operation set check_at = clock_timestamp() where id = $1', [refunded!.id]);
    await vi.waitFor(async () => {
      await reconcileRound(refunding.payments);
      expect((await autoRefunds(payment))[0]?.status).toBe('failed');
    }, WAIT);
    const calls = await system.simulator.calls({ operation: 'refund', reference: refunded!.provider_key });
    expect(calls.length).toBeGreaterThan(0);
    expect(await stateOf(system, payment)).toMatchObject({ refunded: 0, reserved: 0 });
    // All of the payment's own money can still be given back.
    await refund(system, payment.id, { amount: '10.00' }).expect(201);
  });

  it('beside an authorization: our capture takes the one that the payment has, and no other is told of', async () => {
    const { payment, first } = await paidAgain({ capture: 'manual' });
    await deliverTo(refunding, told('succeeded', first));
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'authorized',
      captured: 0,
      anomalies: ['paid_twice'],
    });

    const answer = await capture(system, payment.id, { amount: '6.00' }).expect(200);
    expect(answer.body).toMatchObject({ status: 'succeeded', amount_captured: '6.00' });
    await deliverTo(refunding, told('succeeded', await atProvider(system, payment), { amount_captured_minor: 600 }));
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 600,
      anomalies: ['paid_twice'],
    });
    const [refunded, ...more] = await autoRefunds(payment);
    expect(more).toEqual([]);
    expect(refunded).toMatchObject({ amount_minor: 1000n });
    const taken = await system.simulator.movements({ payment_id: payment.provider_payment_id });
    expect(taken.map(({ kind, amount_minor }) => `${kind} ${amount_minor}`)).toEqual([
      'authorization 1000',
      'capture 600',
    ]);
  });

  it('under one reference, by a provider that forgot our key, is an anomaly too', async () => {
    const payment = await made(system);
    const view = await atProvider(system, payment);
    const twin = { ...view, id: `${view.id}-twin` };
    await deliverTo(refunding, told('succeeded', twin));
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 1000,
      anomalies: ['paid_twice'],
    });
    expect((await system.getPayment(payment.id)).body.provider_payment_id).toBe(payment.provider_payment_id);
    // Which of the two to give back is for people to see.
    expect(await autoRefunds(payment)).toEqual([]);
  });
});

describe('success after cancel', () => {
  async function canceled(): Promise<{ payment: Made; view: SimulatorPayment }> {
    const payment = await made(system, { payment_method: 'pm_requires_action' });
    await cancel(system, payment.id).expect(200);
    return { payment, view: await atProvider(system, payment) };
  }

  it('is succeeded, as an anomaly: the client sees the money and can give it back', async () => {
    const { payment, view } = await canceled();
    await deliverTo(system.first, told('succeeded', view));
    await deliverTo(system.first, told('succeeded', view));
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 1000,
      operations: ['charge succeeded 1000', 'cancel succeeded 0'],
      anomalies: ['paid_after_cancel'],
      events: ['PaymentRequiresAction', 'PaymentCanceled', 'PaymentAnomalyDetected', 'PaymentSucceeded'],
    });
    expect(await autoRefunds(payment)).toEqual([]);
    await expectShown(payment, 'paid_after_cancel');
  });

  it('with AUTO_REFUND_ANOMALIES is given back once, and the payment shows it', async () => {
    const { payment, view } = await canceled();
    await deliverTo(refunding, told('succeeded', view));
    await deliverTo(refunding, told('succeeded', view));
    const all = await autoRefunds(payment);
    expect(all).toMatchObject([{ amount_minor: 1000n }]);
    // Nobody gives it back a second time.
    expect((await refund(system, payment.id).expect(409)).body.code).toBe('amount_exceeds_remaining');
    expect(await stateOf(system, payment)).toMatchObject({ reserved: 1000, captured: 1000 });
  });
});

describe('another amount or currency than asked for', () => {
  it.each([
    ['less', 'pm_other_amount_999', 'amount_mismatch'],
    ['another currency', 'pm_other_currency_USD', 'currency_mismatch'],
  ])('%s is an anomaly and never paid, in the answer as in the webhook', async (_name, payment_method, kind) => {
    const answer = await system.charge(newCharge({ payment_method })).expect(202);
    const { id, external_payment_id } = answer.body;
    const reference = await referenceOf(id);
    const [view] = await system.simulator.payments(reference);
    const payment = { id, external_payment_id, provider_payment_id: view!.id, body: {} };
    await deliverTo(system.first, told('succeeded', view!));
    await deliverTo(refunding, told('succeeded', view!));
    const state = await stateOf(system, payment);
    expect(state).toMatchObject({ status: 'processing', captured: 0, operations: ['charge processing 1000'] });
    expect(state.anomalies).toEqual([kind]);
    expect(state.events).toEqual(['PaymentAnomalyDetected']);
    await expectShown(payment, kind);
    expect((await refund(system, id).expect(409)).body.code).toBe('invalid_payment_state');
  });

  it.each([
    ['less', { amount_minor: 999, amount_captured_minor: 999 }, 'amount_mismatch'],
    ['less captured', { amount_captured_minor: 1 }, 'amount_mismatch'],
    ['another currency', { currency: 'USD' }, 'currency_mismatch'],
  ])('%s, heard of by webhook only: the payment stays as it was', async (_name, more, kind) => {
    const payment = await made(system, { payment_method: 'pm_requires_action' });
    const view = await atProvider(system, payment);
    for (let n = 0; n < 3; n += 1) await deliverTo(system.first, told('succeeded', view, more));
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'requires_action',
      captured: 0,
      anomalies: [kind],
      events: ['PaymentRequiresAction', 'PaymentAnomalyDetected'],
    });
    // The right news after it is taken as ever.
    await deliverTo(system.first, told('succeeded', view));
    expect(await stateOf(system, payment)).toMatchObject({ status: 'succeeded', captured: 1000, anomalies: [kind] });
  });

  it('more is paid, and an anomaly: what was taken is what we say', async () => {
    const payment = await made(system, { payment_method: 'pm_requires_action' });
    const view = await atProvider(system, payment);
    await deliverTo(system.first, told('succeeded', view, { amount_minor: 1500, amount_captured_minor: 1500 }));
    const state = await stateOf(system, payment);
    expect(state).toMatchObject({ status: 'succeeded', captured: 1500 });
    expect(state.anomalies.sort()).toEqual(['amount_mismatch', 'captured_too_much']);
    await refund(system, payment.id, { amount: '15.00' }).expect(201);
  });
});

async function referenceOf(payment_id: string): Promise<string> {
  const [row] = await system.query<{ provider_key: string }>(
    `select provider_key from operation where payment_id = $1 and kind = 'charge'`,
    [payment_id],
  );
  return row!.provider_key;
}
