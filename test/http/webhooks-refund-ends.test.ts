import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestSystem } from '../support/app.js';
import { get, type Made, made, refund, rows } from '../support/follow-up.js';
import { atProvider, deliver, eventRow, heard, newEventId, refundEvent, stateOf } from '../support/webhooks.js';

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

describe('a refund that ends later, or otherwise', () => {
  it.each(['failed', 'canceled'] as const)('%s after it had succeeded: the amount is free again', async (status) => {
    const payment = await charged();
    const key = randomUUID();
    const answer = await refund(system, payment.id, { amount: '6.00' }, { key }).expect(201);
    await heard(system, payment, 2);
    await system.simulator.refundStatus(answer.body.provider_refund_id, status);
    const [, succeeded, ended] = await heard(system, payment, 3);
    expect(ended?.type).toBe(`refund.${status}`);
    // Old news, under a new id too, does not bring it back.
    expect(await take(succeeded!.body)).toBe('no_change');
    expect(await take(ended!.body)).toBe('no_change');
    expect(await stateOf(system, payment)).toMatchObject({
      status: 'succeeded',
      refunded: 0,
      reserved: 0,
      operations: ['charge succeeded 1000', 'refund failed 600'],
      events: ['PaymentSucceeded', 'RefundSucceeded', 'RefundFailed'],
      anomalies: [],
      movements: ['charge 1000', 'refund 600', 'refund_reversal 600'],
    });
    expect((await get(system, `/refunds/${answer.body.id}`)).body).toMatchObject({
      status: 'failed',
      failure: { code: expect.any(String) },
    });
    // What was answered stays answered; and all of it can be refunded again.
    expect((await refund(system, payment.id, { amount: '6.00' }, { key })).text).toBe(answer.text);
    await refund(system, payment.id, { amount: '10.00' }).expect(201);
    expect(await stateOf(system, payment)).toMatchObject({ refunded: 1000, reserved: 1000 });
  });

  it.each(['succeeded', 'failed', 'canceled'] as const)(
    'pending, then %s by webhook: its key is answered',
    async (status) => {
      const payment = await charged();
      await system.simulator.next(payment.provider_payment_id, 'refund', 'pm_async_success_600000');
      const key = randomUUID();
      const pending = await refund(system, payment.id, { amount: '6.00' }, { key }).expect(202);
      expect(pending.body).toMatchObject({ status: 'processing' });
      const { operations } = await rows(system, payment.id);
      expect(await stateOf(system, payment)).toMatchObject({ refunded: 0, reserved: 600 });
      const provider_refund_id = pending.body.provider_refund_id as string;
      await system.simulator.refundStatus(provider_refund_id, status);
      await heard(system, payment, 2);
      const end = status === 'succeeded' ? 'succeeded' : 'failed';
      const back = status === 'succeeded' ? 600 : 0;
      expect(await stateOf(system, payment)).toMatchObject({
        refunded: back,
        reserved: back,
        operations: ['charge succeeded 1000', `refund ${end} 600`],
        anomalies: [],
      });
      const answer = await refund(system, payment.id, { amount: '6.00' }, { key }).expect(201);
      expect(answer.body).toMatchObject({ id: operations[0]!.id, status: end });
      expect(answer.headers['idempotent-replayed']).toBe('true');
    },
  );

  it('of another amount than asked: what was given back is what we say, and an anomaly', async () => {
    const payment = await charged();
    await system.simulator.next(payment.provider_payment_id, 'refund', 'pm_other_amount_300');
    await refund(system, payment.id, { amount: '6.00' }).expect(201);
    await heard(system, payment, 2);
    expect(await stateOf(system, payment)).toMatchObject({
      refunded: 300,
      reserved: 300,
      operations: ['charge succeeded 1000', 'refund succeeded 300'],
      anomalies: ['amount_mismatch'],
    });
  });

  it('in another currency is an anomaly, and our amounts stay in ours', async () => {
    const payment = await charged();
    const view = await atProvider(system, payment);
    const given = { id: 'sbx_ref_usd', status: 'succeeded', amount_minor: 77_777, currency: 'USD' };
    expect(await take(refundEvent(view, given))).toBe('applied');
    expect(await stateOf(system, payment)).toMatchObject({
      refunded: 0,
      reserved: 0,
      anomalies: ['currency_mismatch'],
    });
    await refund(system, payment.id, { amount: '10.00' }).expect(201);
  });

  it('made twice by a provider that forgot our key is two refunds here, and an anomaly', async () => {
    const payment = await charged();
    const answer = await refund(system, payment.id, { amount: '3.00' }).expect(201);
    const [, event] = await heard(system, payment, 2);
    const { refund: once } = event!.body.data;
    const twin = { ...once!, id: `${once!.id}-twin` };
    expect(await take(refundEvent(event!.body.data.payment, twin))).toBe('applied');
    expect(await take(refundEvent(event!.body.data.payment, twin))).toBe('no_change');
    expect(await stateOf(system, payment)).toMatchObject({
      refunded: 600,
      reserved: 600,
      operations: ['charge succeeded 1000', 'refund succeeded 300', 'refund succeeded 300'],
      anomalies: ['refunded_too_much'],
    });
    expect(await refundsOf(payment)).toMatchObject([
      { id: answer.body.id, provider_refund_id: once!.id },
      { provider_refund_id: twin.id },
    ]);
  });
});
