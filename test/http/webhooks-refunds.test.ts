import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newCharge, TestSystem } from '../support/app.js';
import { get, type Made, made, refund, rows } from '../support/follow-up.js';
import { SimulatorApi } from '../support/simulator-api.js';
import type { SimulatorPayment } from '../support/simulator.js';
import { atProvider, deliver, eventRow, heard, newEventId, refundEvent, stateOf, told } from '../support/webhooks.js';

let system: TestSystem;
beforeAll(async () => {
  system = await TestSystem.start({ webhooks: true });
});
afterAll(() => system.close());

async function charged(amount = '10.00'): Promise<Made> {
  const payment = await made(system, { amount });
  await heard(system, payment);
  return payment;
}

const refundsOf = async (payment: Made): Promise<Record<string, unknown>[]> =>
  (await get(system, `/payments/${payment.id}/refunds`).expect(200)).body.data as Record<string, unknown>[];

async function take(event: object, event_id = newEventId()): Promise<string | undefined> {
  expect((await deliver(system, event, { event_id })).status).toBe(200);
  return (await eventRow(system, event_id))?.outcome;
}

describe('a refund made at the provider’s dashboard', () => {
  it('appears as one here, in parts too, and lowers what can be refunded', async () => {
    const payment = await charged();
    const first = await system.simulator.dashboard(payment.provider_payment_id, 'refund', 250);
    await heard(system, payment, 2);
    const second = await system.simulator.dashboard(payment.provider_payment_id, 'refund', 350);
    await heard(system, payment, 3);
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      refunded: 600,
      reserved: 600,
      operations: ['charge succeeded 1000', 'refund succeeded 250', 'refund succeeded 350'],
      events: ['PaymentSucceeded', 'RefundSucceeded', 'RefundSucceeded'],
      anomalies: [],
      movements: ['charge 1000', 'refund 250', 'refund 350'],
    });
    expect(await refundsOf(payment)).toMatchObject([
      { status: 'succeeded', amount: '2.50', provider_refund_id: first.id },
      { status: 'succeeded', amount: '3.50', provider_refund_id: second.id },
    ]);
    expect((await rows(system, payment.id)).operations).toMatchObject([{ origin: 'provider' }, { origin: 'provider' }]);
    expect((await refund(system, payment.id, { amount: '4.01' }).expect(409)).body.remaining).toBe('4.00');
    await refund(system, payment.id).expect(201);
    expect((await system.getPayment(payment.id)).body).toMatchObject({ amount_refunded: '10.00' });
  });

  it('told many times, under one event id and under others, is one refund', async () => {
    const payment = await charged();
    await system.simulator.dashboard(payment.provider_payment_id, 'refund', 300);
    const [, event] = await heard(system, payment, 2);
    await system.simulator.resend(event!.id, 10);
    await Promise.all(Array.from({ length: 10 }, () => take(event!.body)));
    expect(await stateOf(system, payment)).toMatchObject({
      refunded: 300,
      operations: ['charge succeeded 1000', 'refund succeeded 300'],
      events: ['PaymentSucceeded', 'RefundSucceeded'],
    });
  });

  it('of all, while a refund of ours is in flight: one of them happens, no money goes out twice', async () => {
    const payment = await charged();
    const held = system.first.holdAt('begun');
    const asking = refund(system, payment.id, { amount: '10.00' }).then((answer) => answer);
    await held.reached;
    expect(await stateOf(system, payment)).toMatchObject({ reserved: 1000, refunded: 0 });
    await system.simulator.dashboard(payment.provider_payment_id, 'refund');
    held.release();
    const answer = await asking;
    expect(answer.status).toBe(201);
    expect(answer.body).toMatchObject({ status: 'failed' });
    await heard(system, payment, 2);
    expect(await stateOf(system, payment)).toMatchObject({
      refunded: 1000,
      reserved: 1000,
      movements: ['charge 1000', 'refund 1000'],
      anomalies: [],
    });
  });

  it('of a charge that was taken in excess concerns that excess only', async () => {
    const body = newCharge({ payment_method: 'pm_decline_card_declined' });
    const declined = await system.charge(body).expect(201);
    const first = await new SimulatorApi(system.simulator.url).payment(declined.body.provider_payment_id);
    const paid = await system.charge({ ...body, payment_method: 'pm_success' }).expect(201);
    const payment: Made = { ...paid.body, body };
    await take(told('succeeded', first));
    const given = { id: 'sbx_ref_excess', status: 'succeeded', amount_minor: 1000 };
    expect(await take(refundEvent(taken(first), given))).toBe('applied');
    expect(await take(refundEvent(taken(first), given))).toBe('no_change');
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 1000,
      refunded: 0,
      reserved: 0,
      operations: ['charge succeeded 1000', 'charge succeeded 1000', 'refund succeeded 1000'],
      anomalies: ['paid_twice'],
    });
    // All of the payment's own money can still be given back.
    await refund(system, payment.id, { amount: '10.00' }).expect(201);
    expect(await stateOf(system, payment)).toMatchObject({ refunded: 1000, reserved: 1000, anomalies: ['paid_twice'] });
  });

  it('of more than was captured is recorded, as an anomaly', async () => {
    const payment = await charged();
    const view = await atProvider(system, payment);
    for (const amount_minor of [700, 500]) {
      await take(refundEvent(view, { id: `sbx_ref_${randomUUID()}`, status: 'succeeded', amount_minor }));
    }
    expect(await stateOf(system, payment)).toMatchObject({
      refunded: 1200,
      reserved: 1200,
      anomalies: ['refunded_too_much'],
    });
    expect((await refund(system, payment.id).expect(409)).body).toMatchObject({ remaining: '0.00' });
  });

  it('that is heard of before the charge’s own success is no anomaly', async () => {
    const payment = await made(system, { payment_method: 'pm_requires_action' });
    await heard(system, payment);
    const view = await atProvider(system, payment);
    const paid = { ...view, status: 'succeeded', amount_captured_minor: 1000, amount_refunded_minor: 400 };
    expect(await take(refundEvent(paid, { id: 'sbx_ref_early', status: 'succeeded', amount_minor: 400 }))).toBe(
      'applied',
    );
    expect(await take(told('succeeded', view, { amount_refunded_minor: 400 }))).toBe('applied');
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      captured: 1000,
      refunded: 400,
      reserved: 400,
      anomalies: [],
    });
  });

  it('that carries none of our metadata is found by the charge it gives back', async () => {
    const payment = await charged();
    const view = { ...(await atProvider(system, payment)), metadata: {} };
    const given = { id: 'sbx_ref_bare', status: 'succeeded', amount_minor: 100 };
    expect(await take(refundEvent(view, given))).toBe('applied');
    const elsewhere = { ...given, id: 'sbx_ref_elsewhere', payment_id: 'sbx_pay_of_somebody_else' };
    expect(await take(refundEvent(view, elsewhere))).toBe('foreign');
    expect(await stateOf(system, payment)).toMatchObject({ refunded: 100, anomalies: [] });
  });
});

describe('what a charge’s events say of its refunds', () => {
  it('are totals of what we know already: in any order, and told twice, they add nothing', async () => {
    const payment = await charged();
    await refund(system, payment.id, { amount: '2.00' }).expect(201);
    await refund(system, payment.id, { amount: '3.00' }).expect(201);
    await heard(system, payment, 3);
    const view = await atProvider(system, payment);
    expect(view.amount_refunded_minor).toBe(500);
    const before = await stateOf(system, payment);
    for (const amount_refunded_minor of [500, 0, 200, 500, 200]) {
      expect(await take(told('succeeded', view, { amount_refunded_minor }))).toBe('no_change');
    }
    expect(await stateOf(system, payment)).toEqual(before);
    expect(before).toMatchObject({ refunded: 500, reserved: 500 });
  });
});

/** As the provider has it once its money was taken. */
function taken(payment: SimulatorPayment): SimulatorPayment {
  return { ...payment, status: 'succeeded', failure_code: null, amount_captured_minor: payment.amount_minor };
}
