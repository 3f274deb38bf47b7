import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Jobs } from '../../src/jobs/index.js';
import { recoverRound } from '../../src/jobs/recovery.js';
import { takeOverExpired } from '../../src/store/operations.js';
import { newCharge, type TestInstance, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';
import { soon } from '../support/soon.js';

let system: TestSystem;
let other: TestInstance;
let jobs: Jobs | undefined;
beforeAll(async () => {
  system = await TestSystem.start();
  other = await system.join();
});
afterEach(() => jobs?.stop());
afterAll(() => system.close(checkInvariants));

/** A request whose process stands still at a step and whose lease is over. It goes on when it is released. */
async function interrupted(step: 'reserved' | 'begun' | 'answered', body: object, key: string) {
  const held = system.first.holdAt(step);
  const answer = system.charge({ ...body }, { key }).then((got) => got);
  const operation_id = await held.reached;
  await system.expireLease(key);
  return { answer, operation_id, release: () => held.release() };
}

/** The request of somebody who pays again after a decline: its operation is begun after its reservation, not with it. */
async function payAgain(): Promise<{ external_payment_id: string }> {
  const declined = newCharge({ payment_method: 'pm_decline_card_declined' });
  await system.charge(declined).expect(201);
  return { ...declined, payment_method: 'pm_success' } as typeof declined;
}

/** Reconciliation may look at the declined try meanwhile: that moves nothing. */
async function chargesSent(external_payment_id: string) {
  return (await system.calls(external_payment_id)).filter(({ operation }) => operation === 'charge');
}

describe('a request that broke off after its reservation', () => {
  it('is only released by the background job: nothing moves', async () => {
    const body = await payAgain();
    const before = await chargesSent(body.external_payment_id);
    const key = randomUUID();
    const { answer, release } = await interrupted('reserved', body, key);
    jobs = other.startJobs();
    await soon(async () => expect(await system.record(key)).toBeUndefined());
    await jobs.stop();
    expect(await chargesSent(body.external_payment_id)).toEqual(before);
    expect((await system.rowsOf(body.external_payment_id)).operations).toHaveLength(1);

    // Its process wakes up: the lease is gone, and it begins nothing.
    release();
    expect((await answer).status).toBe(409);
    expect((await answer).body.code).toBe('idempotency_key_in_progress');
    expect(await chargesSent(body.external_payment_id)).toEqual(before);
    expect((await system.charge(body, { key }).expect(201)).body.status).toBe('succeeded');
  });

  it('is run by a retry; the first process wakes up and answers the same', async () => {
    const body = await payAgain();
    const key = randomUUID();
    const { answer, release } = await interrupted('reserved', body, key);
    const retry = await system.charge(body, { key, instance: other }).expect(201);
    release();
    expect((await answer).text).toBe(retry.text);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('and whose key has gone to another command meanwhile is not answered with that one’s answer', async () => {
    const body = await payAgain();
    const before = await chargesSent(body.external_payment_id);
    const key = randomUUID();
    const { answer, release } = await interrupted('reserved', body, key);
    await recoverRound(other.payments);
    const taken = await system.charge(newCharge({ amount: '77.00' }), { key, instance: other }).expect(201);
    release();
    expect((await answer).text).not.toBe(taken.text);
    expect((await answer).status).toBe(409);
    expect((await answer).body.code).toBe('idempotency_key_reused');
    expect(await chargesSent(body.external_payment_id)).toEqual(before);
  });
});

describe.each(['reserved', 'begun', 'answered'] as const)('a request that broke off when it had %s', (step) => {
  it('is finished by the background job; the key has its answer, also for the process that wakes up', async () => {
    const body = newCharge();
    const key = randomUUID();
    const { answer, release } = await interrupted(step, body, key);
    jobs = other.startJobs();
    await soon(async () => expect((await system.record(key))?.state).toBe('done'));
    await jobs.stop();
    const retry = await system.charge(body, { key }).expect(201);
    expect(retry.headers['idempotent-replayed']).toBe('true');
    expect(retry.body.status).toBe('succeeded');

    release();
    expect(await answer).toMatchObject({ status: 201, text: retry.text });
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    const { operations, events } = await system.rowsOf(body.external_payment_id);
    expect(operations).toHaveLength(1);
    expect(events).toHaveLength(1);
  });

  it('is resumed by a retry', async () => {
    const body = newCharge();
    const key = randomUUID();
    const { answer, release } = await interrupted(step, body, key);
    const retry = await system.charge(body, { key, instance: other }).expect(201);
    expect(retry.body.status).toBe('succeeded');
    release();
    expect((await answer).text).toBe(retry.text);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('is resumed by 20 retries and the jobs of two instances at once: one movement, one answer', async () => {
    const body = newCharge({ payment_method: 'pm_slow_answer_100' });
    const key = randomUUID();
    const { answer, release } = await interrupted(step, body, key);
    const both = [other.startJobs(), system.first.startJobs()];
    release();
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        system.charge(body, { key, instance: n % 2 === 0 ? other : system.first, wait_s: 10 }),
      ),
    );
    await Promise.all(both.map((running) => running.stop()));
    expect([...new Set(answers.map(({ status }) => status))]).toEqual([201]);
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    // Whoever lost its lease finds the answer there, or somebody at work on it.
    const first = await answer;
    expect([answers[0]!.text, 'idempotency_key_in_progress']).toContain(
      first.status === 201 ? first.text : first.body.code,
    );
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it.each([
    ['pm_decline_card_declined', 'failed'],
    ['pm_requires_action', 'requires_action'],
    ['pm_commit_then_reset', 'succeeded'],
    ['pm_unavailable_once', 'succeeded'],
  ])('with %s: the true outcome (%s)', async (payment_method, status) => {
    const body = newCharge({ payment_method });
    const key = randomUUID();
    const { answer, release } = await interrupted(step, body, key);
    jobs = other.startJobs();
    const final = await system.chargeUntilFinal(body, { key });
    expect(final).toMatchObject({ status: 201, body: { status } });
    release();
    expect((await answer).text).toBe(final.text);
    expect(await system.movements(body.external_payment_id)).toHaveLength(status === 'succeeded' ? 1 : 0);
  });
});

describe('what was settled', () => {
  it('although its own request did not hear of it: the answer is there', async () => {
    const body = newCharge();
    const key = randomUUID();
    const held = system.first.holdAt('settled');
    const answer = system.charge(body, { key }).then((got) => got);
    await held.reached;
    const retry = await system.charge(body, { key, instance: other }).expect(201);
    expect(retry.headers['idempotent-replayed']).toBe('true');
    held.release();
    expect((await answer).text).toBe(retry.text);
  });
});

describe('many at once', () => {
  it('30 requests that broke off at different steps, two instances that recover: each is done once', async () => {
    const bodies = Array.from({ length: 30 }, () => newCharge());
    const keys = bodies.map(() => randomUUID());
    const steps = ['reserved', 'begun', 'answered'] as const;
    const broken = [];
    for (const [n, body] of bodies.entries()) broken.push(await interrupted(steps[n % 3]!, body, keys[n]!));
    const both = [other.startJobs(), system.first.startJobs()];
    await soon(async () => {
      const open = await system.query(`select 1 from idempotency_record where state <> 'done' and key = any($1)`, [
        keys,
      ]);
      expect(open).toEqual([]);
    });
    await Promise.all(both.map((running) => running.stop()));
    for (const { release } of broken) release();
    await Promise.all(broken.map(({ answer }) => answer));
    for (const body of bodies) expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('a lease is taken over by one of those who try at once', async () => {
    const keys = Array.from({ length: 60 }, () => randomUUID());
    for (const key of keys) {
      await system.query(
        `insert into idempotency_record (client_id, key, kind, command_hash, state, lease_token, lease_until, recover_at, payment_id, operation_id, success_status)
         values ('default', $1, 'charge', sha256('x'), 'in_progress', gen_random_uuid(), clock_timestamp(), clock_timestamp(), gen_random_uuid(), gen_random_uuid(), 201)`,
        [key],
      );
    }
    const rounds = await Promise.all(
      Array.from({ length: 24 }, (_, n) =>
        takeOverExpired((n % 2 === 0 ? other : system.first).database.pool, 5, 60_000),
      ),
    );
    const taken = rounds.flat().map((lease) => lease.key);
    expect(taken).toHaveLength(60);
    expect(new Set(taken)).toEqual(new Set(keys));
    await system.query(`delete from idempotency_record where key = any($1)`, [keys]);
  });
});
