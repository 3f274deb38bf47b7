import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type TestInstance, TestSystem } from '../support/app.js';
import { cancel, get, ledger, type Made, made, moved, refund, rows } from '../support/follow-up.js';
import { age, DEAF, HEARING, operate, TAKEN_UNSEEN, tell, unknownCharge } from '../support/operators.js';

const WAIT = { timeout: 30_000, interval: 50 };
const FAILED = ['--outcome', 'failed', '--evidence', 'not found', '--reason', 'no answer', '--by', 'anna'];
const CANCELED = ['--outcome', 'succeeded', '--evidence', 'not held', '--reason', 'no answer', '--by', 'anna'];

let system: TestSystem;
let hearing: TestInstance;
/** Requests that stand still until the end. */
const held: Promise<unknown>[] = [];
beforeAll(async () => {
  system = await TestSystem.start({ ...DEAF, env: { AUTO_REFUND_ANOMALIES: 'true' } });
  hearing = await system.join(HEARING);
});
afterAll(async () => {
  await system.close();
  await Promise.allSettled(held);
});

/** Taken without our knowing, given up by an operator who was wrong, and paid again: the provider has it twice. */
async function paidTwice() {
  const charge = await unknownCharge(system, TAKEN_UNSEEN, { amount: '30.00' });
  const [taken] = await ledger(system, charge);
  await age(system, charge.operation_id, 25);
  await operate(system, 'resolve', charge.operation_id, ...FAILED);
  await system.charge({ ...charge.body, payment_method: 'pm_success' }).expect(201);
  return { ...charge, excess: taken!.payment_id };
}

/** An operator takes a cancel for done that never was; then the money is captured at the provider's dashboard. */
async function canceledOnPaper(): Promise<Made> {
  const payment = await made(system, { amount: '30.00', capture: 'manual' });
  const paused = system.first.holdAt('begun');
  held.push(cancel(system, payment.id).then((answer) => answer));
  await operate(system, 'resolve', await paused.reached, ...CANCELED);
  return payment;
}

async function refundsOf(payment_id: string) {
  return (await rows(system, payment_id)).operations.filter(({ kind }) => kind === 'refund');
}

/** Reconciliation sends it. */
async function untilRefunded(...payment_ids: string[]): Promise<void> {
  const jobs = hearing.startJobs();
  await vi.waitFor(async () => {
    for (const id of payment_ids) expect(await refundsOf(id)).toMatchObject([{ status: 'succeeded' }]);
  }, WAIT);
  await jobs.stop();
}

describe('paid twice', () => {
  it('is given back once, on the charge in excess, however often it is told; the payment stays paid', async () => {
    const payment = await paidTwice();
    const before = (await get(system, `/payments/${payment.id}`)).body;
    await Promise.all(Array.from({ length: 5 }, () => tell(system, hearing, payment.excess, 'payment.succeeded')));
    await untilRefunded(payment.id);
    await tell(system, hearing, payment.excess, 'payment.succeeded');

    const [given, ...more] = await refundsOf(payment.id);
    expect(more).toEqual([]);
    expect(given).toMatchObject({ origin: 'auto_refund', amount_minor: 3000n, idempotency_key: null });
    const excess = await system.query('select excess_operation_id from operation where id = $1', [given!.id]);
    expect(excess).toEqual([{ excess_operation_id: payment.operation_id }]);

    const movements = await ledger(system, payment);
    expect(movements.map(({ kind, amount_minor }) => `${kind} ${amount_minor}`)).toEqual([
      'charge 3000',
      'charge 3000',
      'refund 3000',
    ]);
    expect(movements[2]!.payment_id).toBe(payment.excess);
    expect((await get(system, `/payments/${payment.id}`)).body).toMatchObject({
      status: 'succeeded',
      amount_captured: '30.00',
      amount_refunded: '0.00',
      provider_payment_id: before.provider_payment_id,
    });
    expect((await get(system, `/payments/${payment.id}/refunds`)).body.data).toMatchObject([
      { id: given!.id, status: 'succeeded', amount: '30.00', reason: 'taken in excess' },
    ]);
    // What the customer paid for can still be given back, from the charge that counts.
    await refund(system, payment.id).expect(201);
    const after = await ledger(system, payment);
    expect(after[3]).toMatchObject({ kind: 'refund', amount_minor: 3000 });
    expect(after[3]!.payment_id).not.toBe(payment.excess);
  });

  it('two excesses of two payments are two refunds', async () => {
    const payments = [await paidTwice(), await paidTwice()];
    for (const payment of payments) await tell(system, hearing, payment.excess, 'payment.succeeded');
    await untilRefunded(...payments.map(({ id }) => id));
    for (const payment of payments) {
      expect((await moved(system, payment)).filter((movement) => movement.startsWith('refund'))).toEqual([
        'refund 3000',
      ]);
    }
  });
});

describe('paid after a cancel', () => {
  it('is given back, and counts as the payment’s own refund', async () => {
    const payment = await canceledOnPaper();
    expect((await get(system, `/payments/${payment.id}`)).body.status).toBe('canceled');
    await system.simulator.dashboard(payment.provider_payment_id, 'capture', 2000);
    await tell(system, hearing, payment.provider_payment_id, 'payment.succeeded');
    await untilRefunded(payment.id);
    const kinds = await system.query('select kind from anomaly where payment_id = $1', [payment.id]);
    expect(kinds).toEqual([{ kind: 'paid_after_cancel' }]);
    expect((await get(system, `/payments/${payment.id}`)).body).toMatchObject({
      status: 'succeeded',
      amount_captured: '20.00',
      amount_refunded: '20.00',
    });
    expect(await moved(system, payment)).toEqual(['authorization 3000', 'capture 2000', 'refund 2000']);
    // Nothing is left that could be given back a second time.
    const key = randomUUID();
    expect((await refund(system, payment.id, {}, { key }).expect(409)).body.code).toBe('amount_exceeds_remaining');
  });
});
