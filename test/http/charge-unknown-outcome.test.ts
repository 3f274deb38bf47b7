import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newCharge, type TestInstance, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';
import { soon } from '../support/soon.js';

let system: TestSystem;
let beside: TestInstance;
beforeAll(async () => {
  system = await TestSystem.start({ env: { PROVIDER_TIMEOUT_MS: '500' } });
  // Another instance does the background work, so that every outcome below is found by somebody who did not send it.
  beside = await system.join();
  beside.startJobs();
});
afterAll(() => system.close(checkInvariants));

/** What a provider may do to one charge, and what must come of it. */
const BEHAVIOURS: readonly (readonly [string, 'succeeded' | 'failed'])[] = [
  ['pm_commit_then_hang', 'succeeded'],
  ['pm_commit_then_reset', 'succeeded'],
  ['pm_commit_then_error', 'succeeded'],
  ['pm_late_commit_800', 'succeeded'],
  ['pm_lookup_lag_3000', 'succeeded'],
  ['pm_lookup_lag_1000+pm_commit_then_hang', 'succeeded'],
  ['pm_lookup_lag_1000+pm_commit_then_reset', 'succeeded'],
  ['pm_unavailable_once', 'succeeded'],
  ['pm_key_in_use_once', 'succeeded'],
  ['pm_status_500_once', 'succeeded'],
  ['pm_status_429_once', 'succeeded'],
  ['pm_status_401_once', 'succeeded'],
  ['pm_status_403_once', 'succeeded'],
  ['pm_async_success', 'succeeded'],
  ['pm_async_failure', 'failed'],
  ['pm_slow_1200', 'succeeded'],
  ['pm_slow_answer_1200', 'succeeded'],
  ['pm_decline_card_declined+pm_commit_then_hang', 'failed'],
  ['pm_decline_card_declined+pm_commit_then_reset', 'failed'],
];

describe.concurrent('201 or 202, then the true state, one movement, and the final answer under the key', () => {
  it.each(BEHAVIOURS)('%s', async (payment_method, outcome) => {
    const body = newCharge({ payment_method });
    const key = randomUUID();
    const first = await system.charge(body, { key });
    expect([201, 202]).toContain(first.status);
    expect(first.headers.location).toBe(`/payments/${first.body.id}`);
    expect(first.headers['idempotency-key-expires']).toBeDefined();
    if (first.status === 202) expect(first.body.status).toBe('processing');
    else expect(first.body.status).toBe(outcome);

    await soon(async () => expect((await system.getPayment(first.body.id).expect(200)).body.status).toBe(outcome));
    const final = await system.charge(body, { key }).expect(201);
    expect(final.headers['idempotent-replayed']).toBe('true');
    expect(final.body).toMatchObject({ id: first.body.id, status: outcome });
    if (first.status === 201) expect(final.text).toBe(first.text);
    expect((await system.charge(body, { key }).expect(201)).text).toBe(final.text);

    const expected = outcome === 'succeeded' ? [{ kind: 'charge', amount_minor: 1000 }] : [];
    expect(await system.movements(body.external_payment_id)).toMatchObject(expected);
    const { events } = await system.rowsOf(body.external_payment_id);
    expect(events).toHaveLength(1);
  });
});

describe('a key that was answered 202', () => {
  it('asks again: 202 with the payment as it is, then the final answer; another command is refused all the while', async () => {
    const body = newCharge({ payment_method: 'pm_async_success_1500' });
    const key = randomUUID();
    const first = await system.charge(body, { key }).expect(202);
    const again = await system.charge(body, { key }).expect(202);
    expect(again.body.id).toBe(first.body.id);
    expect(again.headers['idempotent-replayed']).toBeUndefined();
    expect((await system.charge({ ...body, amount: '9' }, { key }).expect(409)).body.code).toBe(
      'idempotency_key_reused',
    );
    const final = await system.chargeUntilFinal(body, { key });
    expect(final.status).toBe(201);
    expect((await system.charge({ ...body, amount: '9' }, { key }).expect(409)).body.code).toBe(
      'idempotency_key_reused',
    );
  });

  it('and was forgotten by whoever ended the operation gets its answer when it asks, for good', async () => {
    const body = newCharge();
    const key = randomUUID();
    const made = await system.charge(body, { key }).expect(201);
    await system.query(
      `update idempotency_record set state = 'open', http_status = null, body = null, expires_at = null where key = $1`,
      [key],
    );
    const answer = await system.charge(body, { key }).expect(201);
    expect(answer.body).toEqual(made.body);
    expect(await system.record(key)).toMatchObject({ state: 'done', http_status: 201, body: answer.text });
  });

  it('and a second key of the same command both get the final answer, 201 and 200', async () => {
    const body = newCharge({ payment_method: 'pm_async_success_800' });
    const [first, second] = [randomUUID(), randomUUID()];
    const made = await system.charge(body, { key: first }).expect(202);
    const waits = await system.charge(body, { key: second }).expect(202);
    expect(waits.body.id).toBe(made.body.id);
    const [final, other] = [
      await system.chargeUntilFinal(body, { key: first }),
      await system.chargeUntilFinal(body, { key: second }),
    ];
    expect([final.status, other.status]).toEqual([201, 200]);
    expect(other.text).toBe(final.text);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });
});

describe('a provider that can not be reached', () => {
  it('at the only attempt: nothing was sent, so the charge has failed, and is paid again under a new key', async () => {
    const body = newCharge();
    await system.simulator.kill();
    const key = randomUUID();
    // An instance without a connection left over from before, which would break instead of being refused.
    const instance = await system.join();
    const failed = await system.charge(body, { key, instance }).expect(201);
    expect(failed.body).toMatchObject({ status: 'failed', failure: { code: 'processing_error' } });
    await system.restartSimulator();
    expect((await system.charge(body, { key }).expect(201)).text).toBe(failed.text);
    const paid = await system.charge(body).expect(201);
    expect(paid.body).toMatchObject({ id: failed.body.id, status: 'succeeded' });
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('after an attempt that may be under way: never failed, and settled when it is back', async () => {
    const body = newCharge();
    const key = randomUUID();
    system.simulator.pause();
    const unknown = await system.charge(body, { key }).expect(202);
    expect(unknown.body.status).toBe('processing');
    await system.simulator.kill();
    await soon(async () => {
      const [operation] = await system.query<{ checks: number }>(
        'select checks from operation o join payment p on p.id = o.payment_id where p.external_payment_id = $1',
        [body.external_payment_id],
      );
      expect(operation!.checks).toBeGreaterThan(1);
    });
    expect((await system.charge(body, { key }).expect(202)).body.status).toBe('processing');
    await system.restartSimulator();
    await system.query('update operation set check_at = clock_timestamp() where check_at is not null');
    expect(await system.chargeUntilFinal(body, { key })).toMatchObject({ status: 201, body: { status: 'succeeded' } });
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });
});
