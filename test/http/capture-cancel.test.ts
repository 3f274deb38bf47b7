import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { TestSystem } from '../support/app.js';
import { cancel, capture, get, type Made, made, moved, refund, rows, send, untilFinal } from '../support/follow-up.js';
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

const authorized = (): Promise<Made> => made(system, { amount: '100.00', capture: 'manual' });
const statusOf = async (id: string): Promise<string> => (await get(system, `/payments/${id}`)).body.status;

describe('capture', () => {
  it('takes all that is authorized, once; its key is answered alike for ever', async () => {
    const payment = await authorized();
    const key = randomUUID();
    const answer = await capture(system, payment.id, undefined, { key }).expect(200);
    expect(answer.body).toMatchObject({ id: payment.id, status: 'succeeded', amount_captured: '100.00' });
    expect(answer.headers.location).toBeUndefined();
    await refund(system, payment.id, { amount: '1.00' }).expect(201);
    const again = await capture(system, payment.id, {}, { key }).expect(200);
    expect(again.text).toBe(answer.text);
    expect(again.headers['idempotent-replayed']).toBe('true');

    const second = await capture(system, payment.id).expect(409);
    expect(second.body).toMatchObject({ code: 'invalid_payment_state', payment_status: 'succeeded' });
    expect(await moved(system, payment)).toEqual(['authorization 10000', 'capture 10000', 'refund 100']);
  });

  it('of a part releases the rest: that is no refund', async () => {
    const payment = await authorized();
    const answer = await capture(system, payment.id, { amount: '60' }).expect(200);
    expect(answer.body).toMatchObject({ amount: '100.00', amount_captured: '60.00', amount_refunded: '0.00' });
    const rest = await capture(system, payment.id, { amount: '40.00' }).expect(409);
    expect(rest.body.code).toBe('invalid_payment_state');
    expect((await get(system, `/payments/${payment.id}/refunds`)).body).toEqual({ data: [] });
    expect(await moved(system, payment)).toEqual(['authorization 10000', 'capture 6000']);
  });

  it('of more than is authorized is 409 and says what there is', async () => {
    const payment = await authorized();
    const refused = await capture(system, payment.id, { amount: '100.01' }).expect(409);
    expect(refused.body).toMatchObject({ code: 'amount_exceeds_remaining', remaining: '100.00', currency: 'EUR' });
    await capture(system, payment.id, { amount: '100.00' }).expect(200);
    expect(await moved(system, payment)).toEqual(['authorization 10000', 'capture 10000']);
  });

  it('30 parallel captures under 30 keys: one takes, the others are told the state, or to wait for it', async () => {
    const payment = await authorized();
    const other = await system.join();
    const answers = await Promise.all(
      Array.from({ length: 30 }, (_, n) =>
        capture(system, payment.id, { amount: '50.00' }, { instance: n % 2 === 0 ? system.first : other }),
      ),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    for (const { status, body } of answers.filter((answer) => answer.status !== 200)) {
      expect(status).toBe(409);
      expect(['operation_in_progress', 'invalid_payment_state']).toContain(body.code);
    }
    expect((await rows(system, payment.id)).operations).toHaveLength(1);
    expect(await moved(system, payment)).toEqual(['authorization 10000', 'capture 5000']);
  });

  it.each(['succeeded', 'failed', 'requires_action', 'canceled'])('of a payment that is %s is 409', async (state) => {
    const payment = await inState(state);
    const before = await moved(system, payment);
    const refused = await capture(system, payment.id).expect(409);
    expect(refused.body).toMatchObject({ code: 'invalid_payment_state', payment_status: state });
    expect(await moved(system, payment)).toEqual(before);
  });
});

async function inState(state: string): Promise<Made> {
  if (state === 'failed') return made(system, { payment_method: 'pm_decline_card_declined' });
  if (state === 'requires_action') return made(system, { payment_method: 'pm_requires_action' });
  if (state === 'succeeded') return made(system);
  const payment = await authorized();
  await cancel(system, payment.id).expect(200);
  return payment;
}

describe('cancel', () => {
  it('releases an authorization: the payment is canceled, once, whoever asks again', async () => {
    const payment = await authorized();
    const key = randomUUID();
    const answer = await cancel(system, payment.id, undefined, { key }).expect(200);
    expect(answer.body).toMatchObject({ id: payment.id, status: 'canceled', amount_captured: '0.00' });
    expect((await cancel(system, payment.id, {}, { key }).expect(200)).text).toBe(answer.text);
    expect((await cancel(system, payment.id).expect(409)).body).toMatchObject({ payment_status: 'canceled' });
    expect(await moved(system, payment)).toEqual(['authorization 10000', 'cancel 10000']);
  });

  it('ends an open action; nothing was held, nothing moves', async () => {
    const payment = await made(system, { payment_method: 'pm_requires_action' });
    expect((await cancel(system, payment.id).expect(200)).body).toMatchObject({
      status: 'canceled',
      next_action: null,
    });
    expect((await system.simulator.payments((await chargeKey(payment))!))[0]?.status).toBe('canceled');
    expect(await moved(system, payment)).toEqual([]);
  });

  it.each(['succeeded', 'failed'])('of a payment that is %s is 409', async (state) => {
    const payment = await inState(state);
    const before = await moved(system, payment);
    expect((await cancel(system, payment.id).expect(409)).body).toMatchObject({
      code: 'invalid_payment_state',
      payment_status: state,
    });
    expect(await moved(system, payment)).toEqual(before);
  });
});

async function chargeKey(payment: Made): Promise<string | undefined> {
  const [row] = await system.query<{ provider_key: string }>(
    `select provider_key from operation where payment_id = $1 and kind = 'charge'`,
    [payment.id],
  );
  return row?.provider_key;
}

it('capture and cancel at once, many times over: one wins, the other is 409, both sides agree', async () => {
  const other = await system.join();
  for (let round = 0; round < 12; round += 1) {
    const payment = await authorized();
    const sendBoth = [
      capture(system, payment.id, undefined, { instance: round % 2 === 0 ? system.first : other }),
      cancel(system, payment.id, undefined, { instance: round % 2 === 0 ? other : system.first }),
    ];
    const answers = await Promise.all(round % 3 === 0 ? sendBoth.reverse() : sendBoth);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    const status = await statusOf(payment.id);
    const last = (await moved(system, payment)).slice(1);
    expect(last).toEqual(status === 'succeeded' ? ['capture 10000'] : ['cancel 10000']);
    expect(answers.find((answer) => answer.status === 200)!.body.status).toBe(status);
  }
});

describe('what the provider refuses', () => {
  it('a 4xx to a cancel leaves the state as it was; a new key is a new operation with its own provider key', async () => {
    const payment = await authorized();
    await system.simulator.next(payment.provider_payment_id, 'cancel', 'pm_status_400_once');
    const key = randomUUID();
    const refused = await cancel(system, payment.id, undefined, { key }).expect(409);
    expect(refused.body).toMatchObject({
      code: 'invalid_payment_state',
      payment_status: 'authorized',
      failure_code: 'provider_rejected',
    });
    expect(await statusOf(payment.id)).toBe('authorized');
    expect((await cancel(system, payment.id, undefined, { key }).expect(409)).text).toBe(refused.text);

    await cancel(system, payment.id).expect(200);
    const { operations } = await rows(system, payment.id);
    expect(operations.map(({ status }) => status)).toEqual(['failed', 'succeeded']);
    expect(operations[0]!.provider_key).not.toBe(operations[1]!.provider_key);
    const calls = await system.simulator.calls({ operation: 'cancel' });
    const sent = calls.filter(({ idempotency_key }) => operations.some((o) => o.provider_key === idempotency_key));
    expect(sent.map(({ answer }) => answer)).toEqual([400, 200]);
    expect(await moved(system, payment)).toEqual(['authorization 10000', 'cancel 10000']);
  });

  it('a declined capture leaves the authorization; it can be captured with a new key', async () => {
    const payment = await authorized();
    await system.simulator.next(payment.provider_payment_id, 'capture', 'pm_decline_insufficient_funds');
    const refused = await capture(system, payment.id, { amount: '70.00' }).expect(409);
    expect(refused.body).toMatchObject({
      code: 'invalid_payment_state',
      payment_status: 'authorized',
      failure_code: 'insufficient_funds',
    });
    await capture(system, payment.id, { amount: '70.00' }).expect(200);
    expect(await moved(system, payment)).toEqual(['authorization 10000', 'capture 7000']);
  });

  it('a cancel that comes too late at the provider: the money is taken, and the payment says so', async () => {
    const payment = await authorized();
    await system.simulator.dashboard(payment.provider_payment_id, 'capture');
    const refused = await cancel(system, payment.id).expect(409);
    expect(refused.body).toMatchObject({ code: 'invalid_payment_state', payment_status: 'succeeded' });
    expect(await statusOf(payment.id)).toBe('succeeded');
    expect((await rows(system, payment.id)).operations).toMatchObject([{ kind: 'cancel', status: 'failed' }]);
  });

  it('a capture of what was released at the provider: the payment is not paid', async () => {
    const payment = await authorized();
    await system.simulator.dashboard(payment.provider_payment_id, 'cancel');
    const refused = await capture(system, payment.id).expect(409);
    expect(refused.body).toMatchObject({ code: 'invalid_payment_state', payment_status: 'failed' });
    expect((await get(system, `/payments/${payment.id}`)).body).toMatchObject({
      status: 'failed',
      amount_captured: '0.00',
    });
    expect(await moved(system, payment)).toEqual(['authorization 10000', 'cancel 10000']);
  });
});

describe('an outcome that is not known', () => {
  const CASES = (['capture', 'cancel'] as const).flatMap((kind) =>
    [
      'pm_commit_then_reset',
      'pm_status_500_once',
      'pm_late_commit_200',
      'pm_async_success_200',
      'pm_key_in_use_once',
    ].map((behaviour) => [kind, behaviour] as const),
  );
  it.each(CASES)('of a %s is found out, by the request or after it (%s): one movement', async (kind, behaviour) => {
    const payment = await authorized();
    await system.simulator.next(payment.provider_payment_id, kind, behaviour);
    const key = randomUUID();
    const ask = () => send(system, `/payments/${payment.id}/${kind}`, undefined, { key });
    const first = await ask();
    expect([200, 202]).toContain(first.status);
    if (first.status === 202) expect(first.body.status).toBe('authorized');
    const jobs = system.first.startJobs();
    const last = await untilFinal(ask);
    await jobs.stop();
    expect(last.status).toBe(200);
    expect(last.body).toMatchObject({ id: payment.id, status: kind === 'capture' ? 'succeeded' : 'canceled' });
    expect(await moved(system, payment)).toEqual(['authorization 10000', `${kind} 10000`]);
  });

  it('stays pending: nothing else begins meanwhile, and the refusal does not stick to its key', async () => {
    const payment = await authorized();
    await system.simulator.next(payment.provider_payment_id, 'cancel', 'pm_async_success_600000');
    expect((await cancel(system, payment.id).expect(202)).body.status).toBe('authorized');
    const key = randomUUID();
    const refused = await capture(system, payment.id, undefined, { key }).expect(409);
    expect(refused.body).toMatchObject({
      code: 'operation_in_progress',
      payment_id: payment.id,
      payment_status: 'authorized',
    });
    expect(await system.record(key)).toBeUndefined();
    expect((await cancel(system, payment.id).expect(409)).body.code).toBe('operation_in_progress');

    await system.simulator.complete(payment.provider_payment_id, 'succeeded');
    const jobs = system.first.startJobs();
    await vi.waitFor(async () => expect(await statusOf(payment.id)).toBe('canceled'), WAIT);
    await jobs.stop();
    const late = await capture(system, payment.id, undefined, { key }).expect(409);
    expect(late.body).toMatchObject({ code: 'invalid_payment_state', payment_status: 'canceled' });
    expect(await moved(system, payment)).toEqual(['authorization 10000', 'cancel 10000']);
  });

  it('of a capture that fails in the end: the authorization is gone, the key is told', async () => {
    const payment = await authorized();
    await system.simulator.next(payment.provider_payment_id, 'capture', 'pm_async_failure_200');
    const key = randomUUID();
    await capture(system, payment.id, undefined, { key }).expect(202);
    const jobs = system.first.startJobs();
    const last = await untilFinal(() => capture(system, payment.id, undefined, { key }));
    await jobs.stop();
    expect(last.status).toBe(409);
    expect(last.body).toMatchObject({ code: 'invalid_payment_state', payment_status: 'failed' });
    expect(await moved(system, payment)).toEqual(['authorization 10000']);
  });
});

it('a request that pauses after its intent is durable is resumed under the same provider key', async () => {
  const payment = await authorized();
  const key = randomUUID();
  const paused = system.first.holdAt('begun');
  const first = capture(system, payment.id, undefined, { key }).then((answer) => answer);
  await paused.reached;
  await system.expireLease(key);
  const second = await capture(system, payment.id, undefined, { key }).expect(200);
  paused.release();
  expect((await first).text).toBe(second.text);
  const { operations } = await rows(system, payment.id);
  expect(operations).toHaveLength(1);
  expect(await moved(system, payment)).toEqual(['authorization 10000', 'capture 10000']);
});

it('a key names one operation on one payment: another kind or another payment is a reuse', async () => {
  const [first, second] = [await authorized(), await authorized()];
  const key = randomUUID();
  await capture(system, first.id, { amount: '10.00' }, { key }).expect(200);
  for (const refused of [
    await capture(system, second.id, { amount: '10.00' }, { key }),
    await cancel(system, first.id, undefined, { key }),
    await capture(system, first.id, { amount: '11.00' }, { key }),
    await refund(system, first.id, { amount: '10.00' }, { key }),
  ]) {
    expect(refused.status).toBe(409);
    expect(refused.body.code).toBe('idempotency_key_reused');
  }
  expect(await statusOf(second.id)).toBe('authorized');
  expect(await moved(system, second)).toEqual(['authorization 10000']);
});

it('past the retention of its answer a key still stands for its operation', async () => {
  const payment = await authorized();
  const [captureKey, refundKey] = [randomUUID(), randomUUID()];
  await capture(system, payment.id, { amount: '50.00' }, { key: captureKey }).expect(200);
  const given = await refund(system, payment.id, { amount: '5.00' }, { key: refundKey }).expect(201);
  await system.expireRecord(captureKey);
  await system.expireRecord(refundKey);

  const again = await capture(system, payment.id, { amount: '50.00' }, { key: captureKey }).expect(200);
  expect(again.body).toMatchObject({ id: payment.id, status: 'succeeded', amount_refunded: '5.00' });
  const refundAgain = await refund(system, payment.id, { amount: '5.00' }, { key: refundKey }).expect(200);
  expect(refundAgain.body).toEqual(given.body);
  expect(refundAgain.headers.location).toBe(`/refunds/${given.body.id}`);

  await system.expireRecord(refundKey);
  const other = await refund(system, payment.id, { amount: '6.00' }, { key: refundKey }).expect(409);
  expect(other.body.code).toBe('idempotency_key_reused');
  expect(await moved(system, payment)).toEqual(['authorization 10000', 'capture 5000', 'refund 500']);
});
