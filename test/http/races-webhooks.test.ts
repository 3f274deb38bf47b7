import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newCharge, type TestInstance, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';
import { soon } from '../support/soon.js';

let system: TestSystem;
let instances: [TestInstance, TestInstance];
beforeAll(async () => {
  system = await TestSystem.start({ webhooks: true, env: { PROVIDER_TIMEOUT_MS: '400' } });
  instances = [system.first, await system.join()];
  for (const instance of instances) instance.startJobs();
});
afterAll(() => system.close(checkInvariants));

/** Answers, webhooks, retries, other keys and two jobs, all at the same charge: what it must come to. */
const CHARGES: readonly (readonly [string, 'succeeded' | 'failed'])[] = [
  ['pm_success', 'succeeded'],
  ['pm_webhook_first', 'succeeded'],
  ['pm_webhook_duplicates', 'succeeded'],
  ['pm_webhook_reordered', 'succeeded'],
  ['pm_webhook_first+pm_commit_then_hang', 'succeeded'],
  ['pm_webhook_duplicates+pm_commit_then_reset', 'succeeded'],
  ['pm_webhook_reordered+pm_slow_answer_100', 'succeeded'],
  ['pm_webhook_duplicates+pm_lookup_lag_500', 'succeeded'],
  ['pm_async_success_150', 'succeeded'],
  ['pm_async_failure_150', 'failed'],
  ['pm_async_success_600', 'succeeded'],
  ['pm_webhook_first+pm_decline_card_declined', 'failed'],
  ['pm_webhook_duplicates+pm_decline_expired_card+pm_commit_then_reset', 'failed'],
  ['pm_late_commit_300', 'succeeded'],
  ['pm_slow_200', 'succeeded'],
  ['pm_decline_then_succeed_100', 'succeeded'],
  ['pm_decline_then_succeed_250', 'succeeded'],
];

describe.concurrent('one outcome, one movement, one answer per key', () => {
  it.each(CHARGES)('%s', async (payment_method, outcome) => {
    const body = newCharge({ payment_method });
    // Two keys, three requests each, over both instances at once.
    const keys = [randomUUID(), randomUUID()];
    const first = await Promise.all(
      Array.from({ length: 6 }, (_, n) => system.charge(body, { key: keys[n % 2]!, instance: instances[n % 2]! })),
    );
    for (const { status } of first) expect([200, 201, 202, 409]).toContain(status);
    // A second key that comes after a decline pays again: with this method, by chance of the moment.
    const finals = await Promise.all(keys.map((key) => system.chargeUntilFinal(body, { key })));
    const id = finals[0]!.body.id as string;
    await soon(async () => {
      const payment = (await system.getPayment(id).expect(200)).body;
      if (payment.status !== outcome) throw new Error(`still ${payment.status}`);
    });
    for (const [n, key] of keys.entries()) {
      expect((await system.charge(body, { key })).text).toBe(finals[n]!.text);
    }
    expect(await system.movements(body.external_payment_id)).toHaveLength(outcome === 'succeeded' ? 1 : 0);
    const { payments, anomalies, operations } = await system.rowsOf(body.external_payment_id);
    expect(payments).toHaveLength(1);
    expect(anomalies).toEqual([]);
    expect(operations.filter(({ status }) => status === 'succeeded')).toHaveLength(outcome === 'succeeded' ? 1 : 0);
  });
});

it('a webhook that is told again, 20 times at once, changes nothing more', async () => {
  const body = newCharge();
  const { body: payment } = await system.charge(body).expect(201);
  const event = await soon(async () => {
    const events = await system.simulator.events();
    const found = events.find((told) => told.body.data.payment.id === payment.provider_payment_id && told.is_delivered);
    if (!found) throw new Error('not delivered yet');
    return found;
  });
  const before = await system.rowsOf(body.external_payment_id);
  expect(new Set(await system.simulator.resend(event.id, 20))).toEqual(new Set([200]));
  expect(await system.rowsOf(body.external_payment_id)).toEqual(before);
});
