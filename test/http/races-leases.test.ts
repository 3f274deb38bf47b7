import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Step } from '../../src/payments/context.js';
import { newCharge, type TestInstance, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';
import { soon } from '../support/soon.js';

let system: TestSystem;
let instances: TestInstance[];
beforeAll(async () => {
  system = await TestSystem.start({ webhooks: true, env: { PROVIDER_TIMEOUT_MS: '300' } });
  instances = [system.first, await system.join()];
  for (const instance of instances) instance.startJobs();
});
afterAll(() => system.close(checkInvariants));

const METHODS = [
  'pm_success',
  'pm_commit_then_hang',
  'pm_commit_then_reset',
  'pm_late_commit_200',
  'pm_lookup_lag_400+pm_commit_then_reset',
  'pm_unavailable_once',
  'pm_async_success_100',
  'pm_slow_answer_150',
  'pm_webhook_first',
  'pm_decline_card_declined',
  'pm_decline_then_succeed_80',
  'pm_webhook_first+pm_decline_then_succeed_50+pm_commit_then_reset',
];
const STEPS: readonly Step[] = ['reserved', 'begun', 'answered', 'settled'];

const DISTURBANCES = 150;

/**
 * Half of all leases end at any moment, whoever holds them; somewhere a request stands still for a while. Not for ever: on
 * a slow machine nobody would get to an end between two of these.
 */
async function disturb(): Promise<void> {
  for (let n = 0; n < DISTURBANCES; n += 1) {
    const held = instances[n % 2]!.holdAt(STEPS[n % STEPS.length]!);
    for (let looks = 0; looks < 5; looks += 1) {
      await system.expireLeases('random() < 0.5');
    }
    held.release();
  }
}

it('leases run out under living owners, all the time: one movement per payment, one answer per key, nothing stuck', async () => {
  const answers = new Map<string, string>();
  /** A client: repeats its key on any instance until it has its final answer; after a decline it pays again, at times. */
  async function client(external_payment_id: string, from: number): Promise<void> {
    for (let tries = 0; tries < 3; tries += 1) {
      const key = randomUUID();
      const body = newCharge({ external_payment_id, payment_method: METHODS[(from + tries) % METHODS.length] });
      let round = 0;
      const final = await soon(
        async () => {
          const instance = instances[(from + round++) % 2]!;
          const answer = await system.charge(body, { key, instance, ...(round % 3 === 0 && { wait_s: 1 }) });
          const isFinal = [200, 201].includes(answer.status) || answer.body.code === 'external_payment_id_taken';
          if (isFinal) return answer;
          expect([202, 409]).toContain(answer.status);
          throw new Error(`${answer.status} ${answer.text}`);
        },
        { timeout: 40_000, interval: 60 },
      );
      answers.set(key, final.text);
      expect((await system.charge(body, { key })).text).toBe(final.text);
      if (final.body.status !== 'failed') return;
    }
  }

  const names = Array.from({ length: 24 }, () => `lease-${randomUUID()}`);
  await Promise.all([disturb(), ...names.flatMap((name, n) => [client(name, n), client(name, n + 5)])]);

  await soon(async () => {
    const open = await system.query(`select 1 from idempotency_record where state <> 'done'`);
    const unknown = await system.query(`select 1 from operation where status = 'processing'`);
    const untold = (await system.simulator.events()).filter((event) => !event.is_delivered);
    expect([open.length, unknown.length, untold.length]).toEqual([0, 0, 0]);
  });
  for (const name of names) {
    await soon(async () => {
      const { payments, anomalies } = await system.rowsOf(name);
      expect(await system.movements(name)).toHaveLength(payments[0]!.status === 'succeeded' ? 1 : 0);
      expect(payments).toHaveLength(1);
      expect(anomalies).toEqual([]);
    });
  }
  const records = await system.query<{ key: string; body: string }>('select key, body from idempotency_record');
  for (const { key, body } of records) expect(body).toBe(answers.get(key));
}, 60_000);
