import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newCharge, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';

let system: TestSystem;
let stranger: string;
beforeAll(async () => {
  system = await TestSystem.start();
  stranger = await system.client('stranger', ['payments:read', 'payments:write']);
});
afterAll(() => system.close(checkInvariants));

describe('the same external id under another key', () => {
  it('and the same command: 200 with the same payment, replayed as 200', async () => {
    const body = newCharge();
    const key = randomUUID();
    const first = await system.charge(body).expect(201);
    const second = await system.charge(body, { key }).expect(200);

    expect(second.text).toBe(first.text);
    expect(second.headers.location).toBe(`/payments/${first.body.id}`);
    expect(second.headers['idempotent-replayed']).toBeUndefined();
    const replay = await system.charge(body, { key }).expect(200);
    expect(replay.text).toBe(second.text);
    expect(replay.headers.location).toBe(second.headers.location);
    expect(replay.headers['idempotent-replayed']).toBe('true');
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    expect(await system.calls(body.external_payment_id)).toHaveLength(1);
  });

  it('while the first is under way: 202 at once, and 200 with the final answer when it has ended', async () => {
    const body = newCharge();
    const [first_key, second_key] = [randomUUID(), randomUUID()];
    const held = system.first.holdAt('answered');
    const first = system.charge(body, { key: first_key }).then((answer) => answer);
    await held.reached;
    const second = await system.charge(body, { key: second_key }).expect(202);
    expect(second.body.status).toBe('processing');
    expect(await system.record(second_key)).toMatchObject({ state: 'open', lease_token: null });
    // A new version: whoever has read the waiting keys already, to answer them, has to read again.
    expect((await system.rowsOf(body.external_payment_id)).payments).toMatchObject([{ version: 2 }]);
    expect((await system.charge(body, { key: second_key }).expect(202)).body.id).toBe(second.body.id);
    held.release();

    const made = await first;
    expect(made.status).toBe(201);
    const final = await system.charge(body, { key: second_key }).expect(200);
    expect(final.text).toBe(made.text);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it.each([
    ['another amount', { amount: '10.01' }],
    ['another currency', { currency: 'USD' }],
    ['another customer', { customer_id: 'customer-2' }],
    ['another payment method', { payment_method: 'pm_other' }],
    ['more metadata', { metadata: { a: '1' } }],
  ])('and %s: 409 with the id of the payment, kept for the key', async (_name, change) => {
    const body = newCharge();
    const key = randomUUID();
    const first = await system.charge(body).expect(201);
    const taken = await system.charge({ ...body, ...change }, { key }).expect(409);

    expect(taken.body).toMatchObject({ code: 'external_payment_id_taken', payment_id: first.body.id });
    const replay = await system.charge({ ...body, ...change }, { key }).expect(409);
    expect(replay.text).toBe(taken.text);
    expect(replay.headers['idempotent-replayed']).toBe('true');
    expect(replay.headers['content-type']).toBe('application/problem+json; charset=utf-8');
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('of another client: 409 that tells nothing of the payment', async () => {
    const body = newCharge();
    const key = randomUUID();
    const first = await system.charge(body).expect(201);
    const taken = await system.charge(body, { key, api_key: stranger }).expect(409);

    expect(taken.body.code).toBe('external_payment_id_taken');
    expect(taken.text).not.toContain(first.body.id);
    expect(taken.body).not.toHaveProperty('payment_id');
    expect(Object.values(taken.headers).join()).not.toContain(first.body.id);
    const replay = await system.charge(body, { key, api_key: stranger }).expect(409);
    expect(replay.text).toBe(taken.text);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    expect(await system.movements(body.external_payment_id, 'stranger')).toEqual([]);
  });

  it('of another client is 409 also where the payment has failed: only its own client pays again', async () => {
    const body = newCharge({ payment_method: 'pm_decline_card_declined' });
    await system.charge(body).expect(201);
    const taken = await system.charge({ ...body, payment_method: 'pm_success' }, { api_key: stranger }).expect(409);
    expect(taken.body).not.toHaveProperty('payment_id');
    expect(await system.movements(body.external_payment_id, 'stranger')).toEqual([]);
  });

  it('and the same command on a payment that waits for its customer: 200 with what is to do', async () => {
    const body = newCharge({ payment_method: 'pm_requires_action' });
    const first = await system.charge(body).expect(201);
    const second = await system.charge(body).expect(200);
    expect(second.body).toMatchObject({ id: first.body.id, status: 'requires_action' });
    expect(second.body.next_action).toEqual(first.body.next_action);
  });
});

describe('a key that comes back after its retention', () => {
  it.each([
    ['succeeded', 'pm_success'],
    ['failed', 'pm_decline_card_declined'],
    ['requires_action', 'pm_requires_action'],
  ])('finds its operation: 200 with the payment, which is %s, and nothing moves', async (status, payment_method) => {
    const body = newCharge({ payment_method });
    const key = randomUUID();
    const first = await system.charge(body, { key }).expect(201);
    const calls = await system.calls(body.external_payment_id);
    await system.expireRecord(key);

    const back = await system.charge(body, { key }).expect(200);
    expect(back.body).toMatchObject({ id: first.body.id, status });
    expect(back.headers['idempotent-replayed']).toBeUndefined();
    const replay = await system.charge(body, { key }).expect(200);
    expect(replay.text).toBe(back.text);
    expect(replay.headers['idempotent-replayed']).toBe('true');
    expect(await system.calls(body.external_payment_id)).toEqual(calls);
    const { operations, events } = await system.rowsOf(body.external_payment_id);
    expect(operations).toHaveLength(1);
    expect(events).toHaveLength(1);
  });

  it('with another command on that payment is 409 reused', async () => {
    const body = newCharge();
    const key = randomUUID();
    await system.charge(body, { key }).expect(201);
    await system.expireRecord(key);
    const reused = await system.charge({ ...body, amount: '11.00' }, { key }).expect(409);
    expect(reused.body.code).toBe('idempotency_key_reused');
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('and its record swept: the same', async () => {
    const body = newCharge({ payment_method: 'pm_decline_expired_card' });
    const key = randomUUID();
    const first = await system.charge(body, { key }).expect(201);
    await system.query('delete from idempotency_record where key = $1', [key]);
    const back = await system.charge(body, { key }).expect(200);
    expect(back.body).toMatchObject({ id: first.body.id, status: 'failed' });
    expect((await system.rowsOf(body.external_payment_id)).operations).toHaveLength(1);
  });

  it('after the payment was paid again by another key: 200 with the payment as it is now', async () => {
    const body = newCharge({ payment_method: 'pm_decline_card_declined' });
    const key = randomUUID();
    await system.charge(body, { key }).expect(201);
    await system.charge({ ...body, payment_method: 'pm_success' }).expect(201);
    await system.expireRecord(key);
    const back = await system.charge(body, { key }).expect(200);
    expect(back.body.status).toBe('succeeded');
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('20 times at once: one answer, nothing moves', async () => {
    const body = newCharge();
    const key = randomUUID();
    await system.charge(body, { key }).expect(201);
    await system.expireRecord(key);
    const answers = await Promise.all(Array.from({ length: 20 }, () => system.charge(body, { key, wait_s: 10 })));
    expect([...new Set(answers.map((answer) => answer.status))]).toEqual([200]);
    expect(new Set(answers.map((answer) => answer.text)).size).toBe(1);
    expect(await system.calls(body.external_payment_id)).toHaveLength(1);
  });
});

describe('a database that forgot', () => {
  /** As a dump restored from before the charge leaves it. */
  async function forget(external_payment_id: string): Promise<void> {
    await system.forget(
      [
        `with p as (select id from payment where external_payment_id = $1),
              e as (delete from outbox_event where key in (select id::text from p)),
              o as (delete from operation where payment_id in (select id from p) returning key_hash, idempotency_key)
         delete from idempotency_record where key in (select idempotency_key from o)`,
        'delete from payment where external_payment_id = $1',
      ],
      [external_payment_id],
    );
  }

  it.each(['pm_success', 'pm_commit_then_reset', 'pm_requires_action', 'pm_decline_card_declined'])(
    'the charge (%s), and the client retries with its key: the same outcome, one movement',
    async (payment_method) => {
      const body = newCharge({ payment_method, metadata: { cart: '1' }, return_url: 'https://shop.example/r' });
      const key = randomUUID();
      const first = await system.charge(body, { key }).expect(201);
      const moved = await system.movements(body.external_payment_id);
      await forget(body.external_payment_id);

      const retry = await system.charge(body, { key }).expect(201);
      expect(retry.body.id).not.toBe(first.body.id);
      for (const field of ['status', 'provider_payment_id', 'amount_captured', 'failure', 'next_action']) {
        expect(retry.body[field]).toEqual(first.body[field]);
      }
      expect(await system.movements(body.external_payment_id)).toEqual(moved);
    },
  );

  it('and the client retries under a new key: one movement', async () => {
    const body = newCharge();
    const first = await system.charge(body).expect(201);
    await forget(body.external_payment_id);
    const retry = await system.charge(body).expect(201);
    expect(retry.body.provider_payment_id).toBe(first.body.provider_payment_id);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('both tries of a payment that was paid again: paying again leads back to the one movement', async () => {
    const body = newCharge({ payment_method: 'pm_decline_card_declined' });
    const again = { ...body, payment_method: 'pm_success' };
    await system.charge(body).expect(201);
    const paid = await system.charge(again).expect(201);
    await forget(body.external_payment_id);

    // The second request comes first now. To the provider it is the first try with other parameters: an answer that is
    // never an outcome. Asked about, that try is what it was: declined and closed.
    const jobs = system.first.startJobs();
    const retried = await system.chargeUntilFinal(again, { key: randomUUID() });
    expect(retried.body.status).toBe('failed');
    const back = await system.chargeUntilFinal(again, { key: randomUUID() });
    await jobs.stop();
    expect(back.body).toMatchObject({ status: 'succeeded', provider_payment_id: paid.body.provider_payment_id });
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });
});
