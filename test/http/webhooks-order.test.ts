import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { newCharge, TestSystem } from '../support/app.js';
import { cancel, capture, type Made, made, refund } from '../support/follow-up.js';
import type { SimulatorPayment } from '../support/simulator.js';
import { atProvider, deliver, eventRow, heard, newEventId, stateOf, told, WAIT } from '../support/webhooks.js';

let system: TestSystem;
beforeAll(async () => {
  system = await TestSystem.start({ webhooks: true });
});
afterAll(() => system.close());

/** Delivers what the payment is said to be, one after the other; each is answered 200. @returns what became of each */
async function tell(
  view: SimulatorPayment,
  ...news: readonly (string | [string, Partial<SimulatorPayment>])[]
): Promise<string[]> {
  const outcomes: string[] = [];
  for (const item of news) {
    const [status, more] = typeof item === 'string' ? [item, {}] : item;
    const event_id = newEventId();
    expect((await deliver(system, told(status, view, more), { event_id })).status).toBe(200);
    outcomes.push((await eventRow(system, event_id))?.outcome ?? 'not kept');
  }
  return outcomes;
}

async function open(more: object = {}): Promise<{ payment: Made; view: SimulatorPayment }> {
  const payment = await made(system, { payment_method: 'pm_requires_action', ...more });
  await heard(system, payment);
  return { payment, view: await atProvider(system, payment) };
}

async function held(): Promise<{ payment: Made; view: SimulatorPayment }> {
  return open({ capture: 'manual', payment_method: 'pm_success' });
}

describe('late news', () => {
  it('failed after succeeded stays succeeded', async () => {
    const { payment, view } = await open();
    expect(await tell(view, 'succeeded', 'failed', 'requires_action', 'canceled')).toEqual([
      'applied',
      'no_change',
      'no_change',
      'no_change',
    ]);
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 1000,
      operations: ['charge succeeded 1000'],
      events: ['PaymentRequiresAction', 'PaymentSucceeded'],
      anomalies: [],
    });
  });

  it('succeeded after failed becomes succeeded, and no anomaly', async () => {
    const { payment, view } = await open();
    expect(await tell(view, 'failed', 'succeeded')).toEqual(['applied', 'applied']);
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 1000,
      operations: ['charge succeeded 1000'],
      events: ['PaymentRequiresAction', 'PaymentFailed', 'PaymentSucceeded'],
      anomalies: [],
    });
    const answer = await system.getPayment(payment.id);
    expect(answer.body).toMatchObject({ failure: null, next_action: null, amount_captured: '10.00' });
  });

  it('a decline that succeeds by itself later ends as succeeded', async () => {
    const payment = await made(system, { payment_method: 'pm_decline_then_succeed_200' });
    await vi.waitFor(async () => expect((await stateOf(system, payment)).status).toBe('succeeded'), WAIT);
    await heard(system, payment, 2);
    expect(await stateOf(system, payment)).toMatchObject({
      captured: 1000,
      operations: ['charge succeeded 1000'],
      events: ['PaymentFailed', 'PaymentSucceeded'],
      anomalies: [],
      movements: ['charge 1000'],
    });
  });

  it('sent in the wrong order by the provider: the newest stands', async () => {
    for (const more of [{}, { capture: 'manual' }]) {
      const body = newCharge({ payment_method: 'pm_webhook_reordered', ...more });
      const { id, external_payment_id } = (await system.charge(body).expect(201)).body;
      const payment = { id, external_payment_id };
      await heard(system, payment, 'capture' in more ? 2 : 3);
      const state = await stateOf(system, payment);
      expect(state.status).toBe('capture' in more ? 'authorized' : 'succeeded');
      expect(state).toMatchObject({
        anomalies: [],
        events: [expect.stringMatching(/PaymentSucceeded|PaymentAuthorized/)],
      });
    }
  });

  it('authorized after a cancel changes nothing and raises nothing', async () => {
    const { payment, view } = await held();
    await cancel(system, payment.id).expect(200);
    await heard(system, payment, 2);
    const before = await stateOf(system, payment);
    expect(await tell(view, 'authorized', 'requires_action', 'failed', 'canceled')).toEqual(Array(4).fill('no_change'));
    expect(await stateOf(system, payment)).toEqual(before);
    expect(before).toMatchObject({
      status: 'canceled',
      operations: ['charge failed 1000', 'cancel succeeded 0'],
      events: ['PaymentAuthorized', 'PaymentCanceled'],
      anomalies: [],
      movements: ['authorization 1000', 'cancel 1000'],
    });
  });

  it('authorized after it has expired changes nothing and raises nothing, in whatever order they come', async () => {
    const { payment, view } = await held();
    await system.simulator.expire(payment.provider_payment_id);
    await heard(system, payment, 2);
    const before = await stateOf(system, payment);
    expect(await tell(view, 'authorized')).toEqual(['no_change']);
    expect(await stateOf(system, payment)).toEqual(before);
    expect(before).toMatchObject({ status: 'failed', events: ['PaymentAuthorized', 'PaymentFailed'], anomalies: [] });
    expect((await system.getPayment(payment.id)).body.failure.code).toBe('authorization_expired');

    // The expiry is heard of first: nobody knew that there was an authorization.
    const { payment: unknown, view: open_ } = await open({ capture: 'manual' });
    const expired = ['failed', { failure_code: 'authorization_expired' }] as [string, Partial<SimulatorPayment>];
    expect(await tell(open_, expired, 'authorized')).toEqual(['applied', 'no_change']);
    expect(await stateOf(system, unknown)).toMatchObject({ status: 'failed', anomalies: [] });
  });

  it('canceled at the provider’s own side is a failure, and a late authorized after it nothing', async () => {
    const { payment, view } = await held();
    await system.simulator.dashboard(payment.provider_payment_id, 'cancel');
    await heard(system, payment, 2);
    expect(await tell(view, 'authorized')).toEqual(['no_change']);
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'failed',
      operations: ['charge failed 1000'],
      events: ['PaymentAuthorized', 'PaymentFailed'],
      anomalies: [],
      movements: ['authorization 1000', 'cancel 1000'],
    });
    expect((await capture(system, payment.id).expect(409)).body.code).toBe('invalid_payment_state');
  });
});

describe('captured at the provider’s own side', () => {
  it('and asked for here afterwards: the answer is what was captured, and nothing moves again', async () => {
    const { payment } = await held();
    await system.simulator.dashboard(payment.provider_payment_id, 'capture', 600);
    await heard(system, payment, 2);
    const answer = await capture(system, payment.id).expect(200);
    expect(answer.body).toMatchObject({ status: 'succeeded', amount: '10.00', amount_captured: '6.00' });
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 600,
      operations: ['charge succeeded 1000', 'capture succeeded 1000'],
      // All was asked for, a part was taken.
      events: ['PaymentAuthorized', 'PaymentSucceeded', 'PaymentAnomalyDetected'],
      anomalies: ['amount_mismatch'],
      movements: ['authorization 1000', 'capture 600'],
    });
    expect((await capture(system, payment.id).expect(409)).body.code).toBe('invalid_payment_state');
  });

  it('in part: succeeded with what was captured, and refunded here afterwards', async () => {
    const { payment } = await held();
    await system.simulator.dashboard(payment.provider_payment_id, 'capture', 600);
    await heard(system, payment, 2);
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 600,
      operations: ['charge succeeded 1000'],
      events: ['PaymentAuthorized', 'PaymentSucceeded'],
      anomalies: [],
    });
    expect((await refund(system, payment.id, { amount: '6.01' }).expect(409)).body.remaining).toBe('6.00');
    await refund(system, payment.id).expect(201);
    await heard(system, payment, 3);
    expect(await stateOf(system, payment)).toMatchObject({
      refunded: 600,
      movements: ['authorization 1000', 'capture 600', 'refund 600'],
    });
  });

  it('what is captured is a total: told twice, late or less, it is not added up and does not shrink', async () => {
    const { payment, view } = await held();
    const news = (amount_captured_minor: number): [string, Partial<SimulatorPayment>] => [
      'succeeded',
      { amount_captured_minor },
    ];
    expect(await tell(view, news(600), news(600), news(400), news(1000), news(600))).toEqual([
      'applied',
      'no_change',
      'no_change',
      'applied',
      'no_change',
    ]);
    expect(await stateOf(system, payment)).toMatchObject({ status: 'succeeded', captured: 1000, anomalies: [] });
  });

  it('more than was authorized is an anomaly, and what was taken is what we say', async () => {
    const { payment, view } = await held();
    expect(await tell(view, ['succeeded', { amount_captured_minor: 1500 }])).toEqual(['applied']);
    expect(await tell(view, ['succeeded', { amount_captured_minor: 1500 }])).toEqual(['no_change']);
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 1500,
      anomalies: ['captured_too_much'],
      events: ['PaymentAuthorized', 'PaymentAnomalyDetected', 'PaymentSucceeded'],
    });
  });

  it('while our own capture is in flight: one movement, and its key is answered', async () => {
    const { payment } = await held();
    const begun = system.first.holdAt('begun');
    const asking = capture(system, payment.id).then((answer) => answer);
    await begun.reached;
    await system.simulator.dashboard(payment.provider_payment_id, 'capture');
    begun.release();
    const answer = await asking;
    expect(answer.status).toBe(200);
    expect(answer.body).toMatchObject({ status: 'succeeded', amount_captured: '10.00' });
    await heard(system, payment, 2);
    expect(await stateOf(system, payment)).toMatchObject({
      operations: ['charge succeeded 1000', 'capture succeeded 1000'],
      events: ['PaymentAuthorized', 'PaymentSucceeded'],
      anomalies: [],
      movements: ['authorization 1000', 'capture 1000'],
    });
  });
});
