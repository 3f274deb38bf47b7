import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { TestSystem } from '../support/app.js';
import { get, ledger, made, moved, refund, rows, send, untilFinal } from '../support/follow-up.js';
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

describe('a refund', () => {
  it('gives money back: 201, its own resource, the same answer for its key, one movement', async () => {
    const payment = await made(system, { amount: '100.00' });
    const key = randomUUID();
    const answer = await refund(system, payment.id, { amount: '40', reason: 'came damaged' }, { key }).expect(201);
    expect(answer.body).toMatchObject({
      payment_id: payment.id,
      status: 'succeeded',
      amount: '40.00',
      currency: 'EUR',
      reason: 'came damaged',
      failure: null,
    });
    expect(answer.headers.location).toBe(`/refunds/${answer.body.id}`);

    const again = await refund(system, payment.id, { reason: 'came damaged', amount: '40.0' }, { key }).expect(201);
    expect(again.text).toBe(answer.text);
    expect(again.headers).toMatchObject({ 'idempotent-replayed': 'true', location: `/refunds/${answer.body.id}` });

    expect((await get(system, `/refunds/${answer.body.id}`).expect(200)).body).toEqual(answer.body);
    expect((await get(system, `/payments/${payment.id}/refunds`).expect(200)).body).toEqual({ data: [answer.body] });
    expect((await get(system, `/payments/${payment.id}`)).body).toMatchObject({
      status: 'succeeded',
      amount_captured: '100.00',
      amount_refunded: '40.00',
    });
    expect(await moved(system, payment)).toEqual(['charge 10000', 'refund 4000']);
  });

  it('without an amount is all that is left; with nothing left it is 409 and says what remains', async () => {
    const payment = await made(system, { amount: '10.00' });
    await refund(system, payment.id, { amount: '3.00' }).expect(201);
    expect((await refund(system, payment.id).expect(201)).body.amount).toBe('7.00');
    const key = randomUUID();
    const refused = await refund(system, payment.id, {}, { key }).expect(409);
    expect(refused.body).toMatchObject({
      code: 'amount_exceeds_remaining',
      remaining: '0.00',
      currency: 'EUR',
      payment_id: payment.id,
    });
    // Nothing can change it any more: it stays with its key.
    expect((await refund(system, payment.id, {}, { key }).expect(409)).text).toBe(refused.text);
    expect(await moved(system, payment)).toEqual(['charge 1000', 'refund 300', 'refund 700']);
  });

  it('of the same amount twice, meant twice, happens twice', async () => {
    const payment = await made(system, { amount: '10.00' });
    const [first, second] = await Promise.all([
      refund(system, payment.id, { amount: '4.00' }).expect(201),
      refund(system, payment.id, { amount: '4.00' }).expect(201),
    ]);
    expect(first.body.id).not.toBe(second.body.id);
    expect(await moved(system, payment)).toEqual(['charge 1000', 'refund 400', 'refund 400']);
  });

  it('33.33 three times and 0.01 are 100.00 in full, to the cent', async () => {
    const payment = await made(system, { amount: '100.00' });
    for (const amount of ['33.33', '33.33', '33.33', '0.01']) await refund(system, payment.id, { amount }).expect(201);
    expect((await get(system, `/payments/${payment.id}`)).body.amount_refunded).toBe('100.00');
    await refund(system, payment.id, { amount: '0.01' }).expect(409);
    const given = (await ledger(system, payment)).filter(({ kind }) => kind === 'refund');
    expect(given.map(({ amount_minor }) => amount_minor)).toEqual([3333, 3333, 3333, 1]);
    expect((await get(system, `/payments/${payment.id}/refunds`)).body.data).toHaveLength(4);
  });

  it('of a captured part is never more than that: authorize 100, capture 60, refund 80 → 409, refund 60', async () => {
    const payment = await made(system, { amount: '100.00', capture: 'manual' });
    await send(system, `/payments/${payment.id}/capture`, { amount: '60.00' }).expect(200);
    const refused = await refund(system, payment.id, { amount: '80.00' }).expect(409);
    expect(refused.body).toMatchObject({ code: 'amount_exceeds_remaining', remaining: '60.00' });
    await refund(system, payment.id, { amount: '60.00' }).expect(201);
    expect(await moved(system, payment)).toEqual(['authorization 10000', 'capture 6000', 'refund 6000']);
  });

  it('that the provider declines is a resource too, and frees its amount', async () => {
    const payment = await made(system, { amount: '10.00' });
    await system.simulator.next(payment.provider_payment_id, 'refund', 'pm_decline_card_declined');
    const key = randomUUID();
    const failed = await refund(system, payment.id, {}, { key }).expect(201);
    expect(failed.body).toMatchObject({ status: 'failed', amount: '10.00', failure: { code: 'card_declined' } });
    expect((await rows(system, payment.id)).payment).toMatchObject({
      amount_refunded_minor: 0n,
      refund_reserved_minor: 0n,
    });
    // The key stays with its outcome; a new one is a new operation, with a provider key of its own.
    expect((await refund(system, payment.id, {}, { key }).expect(201)).text).toBe(failed.text);
    await refund(system, payment.id).expect(201);
    const { operations } = await rows(system, payment.id);
    expect(operations.map(({ status }) => status)).toEqual(['failed', 'succeeded']);
    expect(new Set(operations.map(({ provider_key }) => provider_key)).size).toBe(2);
    expect(await moved(system, payment)).toEqual(['charge 1000', 'refund 1000']);
  });

  it('that the provider refuses with a 4xx ends, and frees its amount', async () => {
    const payment = await made(system, { amount: '10.00' });
    await system.simulator.next(payment.provider_payment_id, 'refund', 'pm_status_400_once');
    const failed = await refund(system, payment.id).expect(201);
    expect(failed.body).toMatchObject({ status: 'failed', failure: { code: 'provider_rejected' } });
    await refund(system, payment.id).expect(201);
    expect(await moved(system, payment)).toEqual(['charge 1000', 'refund 1000']);
  });

  it.each(['processing', 'failed', 'authorized', 'requires_action', 'canceled'])(
    'of something not captured (%s) is 409 with its state, and nothing moves',
    async (status) => {
      const payment = await inState(status);
      const refused = await refund(system, payment.id, { amount: '1.00' }).expect(409);
      expect(refused.body).toMatchObject({
        code: 'invalid_payment_state',
        payment_status: status,
        payment_id: payment.id,
      });
      expect((await ledger(system, payment)).filter(({ kind }) => kind === 'refund')).toEqual([]);
      expect((await get(system, `/payments/${payment.id}/refunds`)).body).toEqual({ data: [] });
    },
  );
});

async function inState(status: string) {
  if (status === 'authorized') return made(system, { capture: 'manual' });
  if (status === 'failed') return made(system, { payment_method: 'pm_decline_card_declined' });
  if (status === 'requires_action') return made(system, { payment_method: 'pm_requires_action' });
  if (status === 'canceled') {
    const payment = await made(system, { capture: 'manual' });
    await send(system, `/payments/${payment.id}/cancel`).expect(200);
    return payment;
  }
  const external_payment_id = `order-${randomUUID()}`;
  const body = { amount: '10.00', currency: 'EUR', customer_id: 'c', payment_method: 'pm_async_success_600000' };
  const answer = await system.charge({ ...body, external_payment_id }).expect(202);
  return { id: answer.body.id as string, external_payment_id };
}

describe('under concurrency', () => {
  it('30 parallel refunds under 30 keys over two instances never pass what was captured', async () => {
    const other = await system.join();
    const payment = await made(system, { amount: '100.00' });
    const answers = await Promise.all(
      Array.from({ length: 30 }, (_, n) =>
        refund(system, payment.id, { amount: '7.00' }, { instance: n % 2 === 0 ? system.first : other }),
      ),
    );
    const given = answers.filter(({ status }) => status === 201);
    expect(given).toHaveLength(14);
    for (const refused of answers.filter(({ status }) => status !== 201)) {
      expect(refused.status).toBe(409);
      expect(refused.body.code).toBe('amount_exceeds_remaining');
    }
    const { payment: row, operations } = await rows(system, payment.id);
    expect(row).toMatchObject({ amount_refunded_minor: 9800n, refund_reserved_minor: 9800n });
    expect(operations.filter(({ status }) => status === 'succeeded')).toHaveLength(14);
    expect(operations).toHaveLength(14);
    const refunds = (await ledger(system, payment)).filter(({ kind }) => kind === 'refund');
    expect(refunds.map(({ amount_minor }) => amount_minor)).toEqual(Array.from({ length: 14 }, () => 700));
    expect(new Set(refunds.map(({ reference }) => reference)).size).toBe(14);
  });

  it('pending ones count: what two slow refunds hold is not given a third time', async () => {
    const payment = await made(system, { amount: '10.00' });
    const key = randomUUID();
    const paused = system.first.holdAt('begun');
    const slow = refund(system, payment.id, { amount: '8.00' }, { key }).then((answer) => answer);
    await paused.reached;
    const refused = await refund(system, payment.id, { amount: '3.00' }).expect(409);
    expect(refused.body).toMatchObject({ code: 'amount_exceeds_remaining', remaining: '2.00' });
    await refund(system, payment.id, { amount: '2.00' }).expect(201);
    paused.release();
    expect((await slow).status).toBe(201);
    expect((await moved(system, payment)).sort()).toEqual(['charge 1000', 'refund 200', 'refund 800']);
  });

  it('a refusal while something is pending does not stick to its key', async () => {
    const payment = await made(system, { amount: '10.00' });
    await system.simulator.next(payment.provider_payment_id, 'refund', 'pm_decline_processing_error');
    const paused = system.first.holdAt('begun');
    const failing = refund(system, payment.id).then((answer) => answer);
    await paused.reached;
    const key = randomUUID();
    await refund(system, payment.id, { amount: '1.00' }, { key }).expect(409);
    expect(await system.record(key)).toBeUndefined();
    paused.release();
    expect((await failing).body.status).toBe('failed');
    await refund(system, payment.id, { amount: '1.00' }, { key }).expect(201);
    expect(await moved(system, payment)).toEqual(['charge 1000', 'refund 100']);
  });

  it('50 parallel identical requests give back once', async () => {
    const payment = await made(system, { amount: '10.00' });
    await system.simulator.next(payment.provider_payment_id, 'refund', 'pm_slow_answer_100');
    const key = randomUUID();
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => refund(system, payment.id, { amount: '1.00' }, { key })),
    );
    const given = answers.filter(({ status }) => status === 201);
    expect(new Set(given.map(({ text }) => text)).size).toBe(1);
    for (const { status, body } of answers.filter((answer) => answer.status !== 201)) {
      expect([status, body.code]).toEqual([409, 'idempotency_key_in_progress']);
    }
    expect(await moved(system, payment)).toEqual(['charge 1000', 'refund 100']);
  });
});

describe('when the outcome is not known', () => {
  it.each(['pm_commit_then_reset', 'pm_late_commit_200', 'pm_status_500_once', 'pm_async_success_200'])(
    'it is found out, by the request or after it (%s): the same refund, one movement',
    async (behaviour) => {
      const payment = await made(system, { amount: '10.00' });
      await system.simulator.next(payment.provider_payment_id, 'refund', behaviour);
      const key = randomUUID();
      const ask = () => refund(system, payment.id, { amount: '6.00' }, { key });
      const first = await ask();
      expect([201, 202]).toContain(first.status);
      if (first.status === 202) {
        expect(first.body.status).toBe('processing');
        expect(first.headers.location).toBe(`/refunds/${first.body.id}`);
        const jobs = system.first.startJobs();
        const last = await untilFinal(ask);
        expect(last.status).toBe(201);
        expect(last.body).toMatchObject({ id: first.body.id, status: 'succeeded' });
        await jobs.stop();
      }
      expect((await rows(system, payment.id)).payment).toMatchObject({
        amount_refunded_minor: 600n,
        refund_reserved_minor: 600n,
      });
      expect(await moved(system, payment)).toEqual(['charge 1000', 'refund 600']);
    },
  );

  it('its amount stays reserved until then, and is free when it turns out to have failed', async () => {
    const payment = await made(system, { amount: '10.00' });
    await system.simulator.next(payment.provider_payment_id, 'refund', 'pm_async_failure_600000');
    const pending = await refund(system, payment.id, { amount: '6.00' }).expect(202);
    const key = randomUUID();
    expect((await refund(system, payment.id, { amount: '5.00' }, { key }).expect(409)).body.remaining).toBe('4.00');
    const { operations } = await rows(system, payment.id);
    await system.simulator.refundStatus(operations[0]!.provider_key, 'failed');
    const jobs = system.first.startJobs();
    await vi.waitFor(async () => {
      const { body } = await get(system, `/refunds/${pending.body.id}`);
      expect(body).toMatchObject({ status: 'failed', failure: { code: 'processing_error' } });
    }, WAIT);
    await jobs.stop();
    await refund(system, payment.id, { amount: '5.00' }, { key }).expect(201);
    expect(await moved(system, payment)).toEqual(['charge 1000', 'refund 500']);
  });
});
