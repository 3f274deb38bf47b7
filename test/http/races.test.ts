import { randomUUID } from 'node:crypto';
import type { Response } from 'supertest';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { newCharge, type TestInstance, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';

let system: TestSystem;
let instances: [TestInstance, TestInstance];

beforeAll(async () => {
  system = await TestSystem.start();
  instances = [system.first, await system.join()];
});
afterAll(() => system.close(checkInvariants));

function crowd(count: number, send: (n: number, instance: TestInstance) => Promise<Response>): Promise<Response[]> {
  return Promise.all(Array.from({ length: count }, (_, n) => send(n, instances[n % 2]!)));
}

function statuses(answers: readonly Response[]): number[] {
  return [...new Set(answers.map((answer) => answer.status))].sort();
}

it.each(['pm_success', 'pm_slow_300', 'pm_slow_answer_300'])(
  '50 parallel identical requests over two instances charge once (%s)',
  async (payment_method) => {
    const body = newCharge({ payment_method });
    const key = randomUUID();
    const answers = await crowd(50, async (_n, instance) => system.charge(body, { key, instance }));

    expect(statuses(answers).filter((status) => status !== 201)).toEqual(statuses(answers).includes(409) ? [409] : []);
    const made = answers.filter((answer) => answer.status === 201);
    expect(new Set(made.map((answer) => answer.text)).size).toBe(1);
    for (const refused of answers.filter((answer) => answer.status === 409)) {
      expect(refused.body.code).toBe('idempotency_key_in_progress');
      expect(Number(refused.headers['retry-after'])).toBeGreaterThanOrEqual(1);
    }
    expect(made.filter((answer) => answer.headers['idempotent-replayed'] === undefined)).toHaveLength(1);
    expect(await system.movements(body.external_payment_id)).toMatchObject([{ kind: 'charge', amount_minor: 1000 }]);
    const { payments, operations, events } = await system.rowsOf(body.external_payment_id);
    expect(payments).toMatchObject([{ id: made[0]!.body.id, status: 'succeeded' }]);
    expect(operations).toMatchObject([{ status: 'succeeded', attempts_started: 1, attempts_finished: 1 }]);
    expect(events.map((event) => event.type)).toEqual(['PaymentSucceeded.v1']);
  },
);

it('with Prefer: wait=10 all 50 are answered 201 with the same bytes', async () => {
  const body = newCharge({ payment_method: 'pm_slow_answer_200' });
  const key = randomUUID();
  const answers = await crowd(50, async (_n, instance) => system.charge(body, { key, instance, wait_s: 10 }));

  expect(statuses(answers)).toEqual([201]);
  expect(new Set(answers.map((answer) => answer.text)).size).toBe(1);
  expect(new Set(answers.map((answer) => answer.headers.location)).size).toBe(1);
  expect(new Set(answers.map((answer) => answer.headers['content-type'])).size).toBe(1);
  expect(await system.movements(body.external_payment_id)).toHaveLength(1);
});

it('Prefer: wait takes over a lease that runs out meanwhile', async () => {
  const body = newCharge();
  const key = randomUUID();
  const paused = system.first.holdAt('begun');
  const first = system.charge(body, { key }).then((answer) => answer);
  await paused.reached;
  const second = system.charge(body, { key, instance: instances[1], wait_s: 20 }).then((answer) => answer);
  await system.expireLease(key);

  const answer = await second;
  expect(answer.status).toBe(201);
  paused.release();
  expect((await first).text).toBe(answer.text);
  expect(await system.movements(body.external_payment_id)).toHaveLength(1);
});

it('a wait that is too short for the outcome ends with 409 in progress', async () => {
  const body = newCharge();
  const key = randomUUID();
  const paused = system.first.holdAt('answered');
  const first = system.charge(body, { key }).then((answer) => answer);
  await paused.reached;

  const second = await system.charge(body, { key, wait_s: 1 });
  expect(second.status).toBe(409);
  expect(second.body.code).toBe('idempotency_key_in_progress');
  paused.release();
  expect((await first).status).toBe(201);
});

it('20 parallel charges with 20 keys and one external id: all 2xx, one payment, one movement', async () => {
  const body = newCharge({ payment_method: 'pm_slow_answer_100' });
  const keys = Array.from({ length: 20 }, () => randomUUID());
  const answers = await crowd(20, async (n, instance) => system.charge(body, { key: keys[n]!, instance }));

  for (const answer of answers) expect([200, 201, 202]).toContain(answer.status);
  expect(answers.filter((answer) => answer.status === 201)).toHaveLength(1);
  const [id, ...others] = new Set(answers.map((answer) => answer.body.id as string));
  expect(others).toEqual([]);
  expect((await system.getPayment(id!).expect(200)).body.status).toBe('succeeded');
  expect(await system.movements(body.external_payment_id)).toHaveLength(1);

  // Those who were told 202 have the outcome under their own key, and it does not change any more.
  for (const [n, key] of keys.entries()) {
    const again = await system.charge(body, { key }).expect(answers[n]!.status === 201 ? 201 : 200);
    expect(again.body).toMatchObject({ id, status: 'succeeded' });
    expect(again.headers['idempotent-replayed']).toBe('true');
  }
});

it('one key with 20 different commands at once: one runs, the others are refused as reuse', async () => {
  const key = randomUUID();
  const bodies = Array.from({ length: 20 }, () => newCharge({ payment_method: 'pm_slow_100' }));
  const answers = await crowd(20, async (n, instance) => system.charge(bodies[n]!, { key, instance }));

  expect(answers.filter((answer) => answer.status === 201)).toHaveLength(1);
  const refused = answers.filter((answer) => answer.status !== 201);
  for (const answer of refused) {
    expect(answer.status).toBe(409);
    expect(answer.body.code).toBe('idempotency_key_reused');
    expect(answer.headers['retry-after']).toBeUndefined();
  }
  const moved = await Promise.all(bodies.map((body) => system.movements(body.external_payment_id)));
  expect(moved.flat()).toHaveLength(1);
});

it('100 different charges at once over two instances: each moves once', async () => {
  const bodies = Array.from({ length: 100 }, () => newCharge());
  const answers = await crowd(100, async (n, instance) => system.charge(bodies[n]!, { instance }));

  expect(statuses(answers)).toEqual([201]);
  expect(new Set(answers.map((answer) => answer.body.id)).size).toBe(100);
});

it('a storm: few keys and names, slow and broken providers, retries on both instances', async () => {
  const names = Array.from({ length: 6 }, () => `storm-${randomUUID()}`);
  const methods = ['pm_success', 'pm_commit_then_reset', 'pm_unavailable_once', 'pm_key_in_use_once', 'pm_slow_50'];
  const requests = Array.from({ length: 150 }, (_, n) => {
    const external_payment_id = names[n % names.length]!;
    const payment_method = methods[(n % names.length) % methods.length];
    return { key: `${external_payment_id}-${n % 18}`, body: newCharge({ external_payment_id, payment_method }) };
  });
  const answers = await crowd(150, async (n, instance) =>
    system.charge(requests[n]!.body, { key: requests[n]!.key, instance }),
  );

  for (const answer of answers) expect([200, 201, 202, 409]).toContain(answer.status);
  for (const answer of answers.filter(({ status }) => status === 409)) {
    expect(answer.body.code).toBe('idempotency_key_in_progress');
  }
  for (const instance of instances) instance.startJobs();
  for (const { key, body } of requests) await system.chargeUntilFinal(body, { key });
  for (const name of names) expect(await system.movements(name)).toHaveLength(1);
});
