import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newCharge, type TestInstance, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';
import { soon } from '../support/soon.js';

let system: TestSystem;
let other: TestInstance;
beforeAll(async () => {
  system = await TestSystem.start({ env: { PROVIDER_TIMEOUT_MS: '1000' } });
  other = await system.join();
});
afterAll(() => system.close(checkInvariants));

const DECLINED = { payment_method: 'pm_decline_card_declined' };

describe('a payment that was declined', () => {
  it('is paid again with another token under a new key: the same payment, succeeded, one movement', async () => {
    const body = newCharge(DECLINED);
    const key = randomUUID();
    const declined = await system.charge(body, { key }).expect(201);
    const again = { ...body, payment_method: 'pm_success' };
    const new_key = randomUUID();
    const paid = await system.charge(again, { key: new_key }).expect(201);

    expect(paid.body).toMatchObject({
      id: declined.body.id,
      status: 'succeeded',
      payment_method: 'pm_success',
      failure: null,
      amount_captured: '10.00',
    });
    expect(paid.body.provider_payment_id).not.toBe(declined.body.provider_payment_id);
    expect(paid.headers.location).toBe(`/payments/${declined.body.id}`);
    expect(await system.movements(body.external_payment_id)).toMatchObject([
      { payment_id: paid.body.provider_payment_id },
    ]);

    expect((await system.charge(body, { key }).expect(201)).text).toBe(declined.text);
    expect((await system.charge(again, { key: new_key }).expect(201)).text).toBe(paid.text);
    const { operations, events, anomalies } = await system.rowsOf(body.external_payment_id);
    expect(operations).toMatchObject([
      { try_number: 1, status: 'failed' },
      { try_number: 2, status: 'succeeded' },
    ]);
    expect(operations[0]!.closed_at).not.toBeNull();
    expect(events.map(({ type }) => type)).toEqual(['PaymentFailed.v1', 'PaymentProcessing.v1', 'PaymentSucceeded.v1']);
    expect(anomalies).toEqual([]);
  });

  it('with the same token too, again and again, until it succeeds; then the same command finds it', async () => {
    const body = newCharge(DECLINED);
    const first = await system.charge(body).expect(201);
    for (let n = 0; n < 3; n += 1) {
      const next = await system.charge(body).expect(201);
      expect(next.body).toMatchObject({ id: first.body.id, status: 'failed' });
    }
    const paid = await system.charge({ ...body, payment_method: 'pm_success' }).expect(201);
    expect(paid.body).toMatchObject({ id: first.body.id, status: 'succeeded' });
    expect((await system.charge({ ...body, payment_method: 'pm_success' }).expect(200)).text).toBe(paid.text);
    expect((await system.charge(body).expect(200)).body.status).toBe('succeeded');
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    expect((await system.rowsOf(body.external_payment_id)).operations.map(({ try_number }) => try_number)).toEqual([
      1, 2, 3, 4, 5,
    ]);
  });

  it.each([
    ['amount', { amount: '12.00' }],
    ['currency', { currency: 'USD' }],
    ['customer', { customer_id: 'somebody else' }],
    ['way of capturing', { capture: 'manual' }],
  ])('is not paid again with another %s: 409', async (_name, change) => {
    const body = newCharge(DECLINED);
    const declined = await system.charge(body).expect(201);
    const taken = await system.charge({ ...body, payment_method: 'pm_success', ...change }).expect(409);
    expect(taken.body).toMatchObject({ code: 'external_payment_id_taken', payment_id: declined.body.id });
    expect(await system.movements(body.external_payment_id)).toEqual([]);
  });

  it('is paid again by two at once: one runs, the other is 409 and its key is free afterwards', async () => {
    const body = newCharge(DECLINED);
    await system.charge(body).expect(201);
    const again = { ...body, payment_method: 'pm_slow_answer_300' };
    const keys = Array.from({ length: 10 }, () => randomUUID());
    const answers = await Promise.all(
      keys.map((key, n) => system.charge(again, { key, instance: n % 2 === 0 ? system.first : other })),
    );
    expect(answers.filter((answer) => answer.status === 201)).toHaveLength(1);
    for (const [n, answer] of answers.entries()) {
      if (answer.status === 201) continue;
      // Whoever came when the winner had ended already is told of the payment as it is.
      expect([200, 409]).toContain(answer.status);
      if (answer.status === 200) continue;
      expect(answer.body.code).toBe('operation_in_progress');
      expect(await system.record(keys[n]!)).toBeUndefined();
      expect((await system.charge(again, { key: keys[n]! }).expect(200)).body.status).toBe('succeeded');
    }
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });
});

describe('a declined charge that succeeds later', () => {
  it('by itself: the payment succeeds, and its stored answer stays', async () => {
    const body = newCharge({ payment_method: 'pm_decline_then_succeed_300' });
    const key = randomUUID();
    const declined = await system.charge(body, { key }).expect(201);
    expect(declined.body.status).toBe('failed');
    const jobs = other.startJobs();
    await soon(async () => expect((await system.getPayment(declined.body.id)).body.status).toBe('succeeded'), {
      timeout: 10_000,
    });
    await jobs.stop();
    expect((await system.getPayment(declined.body.id)).body.failure).toBeNull();
    expect((await system.charge(body, { key }).expect(201)).text).toBe(declined.text);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    expect((await system.rowsOf(body.external_payment_id)).anomalies).toEqual([]);
  });

  it('is closed when it is paid again before: one movement, by the second try', async () => {
    const body = newCharge({ payment_method: 'pm_decline_then_succeed_60000' });
    const declined = await system.charge(body).expect(201);
    const paid = await system.charge({ ...body, payment_method: 'pm_success' }).expect(201);
    expect(paid.body.status).toBe('succeeded');
    await expect(system.simulator.complete(declined.body.provider_payment_id, 'succeeded')).rejects.toThrow();
    const [closed] = await system.simulator.payments([...(await referencesInUse(body.external_payment_id))][0]!);
    expect(closed!.status).toBe('canceled');
    expect(await system.movements(body.external_payment_id)).toMatchObject([
      { payment_id: paid.body.provider_payment_id },
    ]);
  });

  it('and is paid again after: closing it shows its success, the new try is void, nothing more moves', async () => {
    const body = newCharge({ payment_method: 'pm_decline_then_succeed_100' });
    const declined = await system.charge(body).expect(201);
    await soon(async () => expect(await system.movements(body.external_payment_id)).toHaveLength(1));
    const key = randomUUID();
    const again = { ...body, payment_method: 'pm_success' };
    const answer = await system.charge(again, { key }).expect(201);

    expect(answer.body).toMatchObject({
      id: declined.body.id,
      status: 'succeeded',
      provider_payment_id: declined.body.provider_payment_id,
      amount_captured: '10.00',
    });
    expect((await system.charge(again, { key }).expect(201)).text).toBe(answer.text);
    const { operations, anomalies } = await system.rowsOf(body.external_payment_id);
    expect(operations.map(({ status }) => status)).toEqual(['succeeded', 'void']);
    expect(anomalies).toEqual([]);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('while it is being paid again, at every moment: never two movements', async () => {
    await Promise.all(
      Array.from({ length: 12 }, async (_, n) => {
        const body = newCharge({ payment_method: `pm_decline_then_succeed_${n * 20}` });
        const key = randomUUID();
        await system.charge(body).expect(201);
        const again = { ...body, payment_method: 'pm_slow_answer_50' };
        const answer = await system.charge(again, { key, instance: other });
        expect([200, 201, 202]).toContain(answer.status);
        const jobs = answer.status === 202 ? other.startJobs() : undefined;
        const final = await system.chargeUntilFinal(again, { key });
        expect(final.body.status).toBe('succeeded');
        await jobs?.stop();
        expect(await system.movements(body.external_payment_id)).toHaveLength(1);
        expect((await system.rowsOf(body.external_payment_id)).anomalies).toEqual([]);
      }),
    );
  });
});

describe('a try before, of which it can not be known whether it is closed', () => {
  it('nothing is sent: 202, and the new try follows when the provider can be asked', async () => {
    const body = newCharge(DECLINED);
    await system.charge(body).expect(201);
    const again = { ...body, payment_method: 'pm_success' };
    const key = randomUUID();
    system.simulator.pause();
    const unknown = await system.charge(again, { key }).expect(202);
    expect(unknown.body.status).toBe('processing');
    // Somebody else who pays again meanwhile is told to wait.
    expect((await system.charge(again).expect(409)).body.code).toBe('operation_in_progress');
    system.simulator.resume();
    expect(await system.movements(body.external_payment_id)).toEqual([]);

    const jobs = other.startJobs();
    const final = await system.chargeUntilFinal(again, { key });
    await jobs.stop();
    expect(final).toMatchObject({ status: 201, body: { status: 'succeeded' } });
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it.each(['begun', 'answered'] as const)(
    'whose process pauses at "%s" while the first try succeeds: taken over, one movement',
    async (step) => {
      const body = newCharge({ payment_method: 'pm_decline_then_succeed_400' });
      const first = await system.charge(body).expect(201);
      const again = { ...body, payment_method: 'pm_success' };
      const key = randomUUID();
      const held = system.first.holdAt(step);
      const paused = system.charge(again, { key }).then((answer) => answer);
      await held.reached;
      await soon(async () => expect(await system.movements(body.external_payment_id)).toHaveLength(1));
      await system.expireLease(key);

      const taken = await system.charge(again, { key, instance: other }).expect(201);
      expect(taken.body).toMatchObject({ id: first.body.id, status: 'succeeded' });
      held.release();
      expect((await paused).text).toBe(taken.text);
      expect(await system.movements(body.external_payment_id)).toHaveLength(1);
      expect((await system.rowsOf(body.external_payment_id)).anomalies).toEqual([]);
    },
  );
});

async function referencesInUse(external_payment_id: string): Promise<string[]> {
  const rows = await system.query<{ provider_key: string }>(
    `select o.provider_key from operation o join payment p on p.id = o.payment_id
     where p.external_payment_id = $1 order by o.try_number`,
    [external_payment_id],
  );
  return rows.map((row) => row.provider_key);
}
