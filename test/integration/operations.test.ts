import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { uuidv7 } from 'uuidv7';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isRefusal, USAGE } from '../../src/operations/command.js';
import { type TestInstance, TestSystem } from '../support/app.js';
import { cancel, capture, get, ledger, made, moved, refund, rows } from '../support/follow-up.js';
import {
  age,
  DEAF,
  eventTypes,
  HEARING,
  LOST,
  operate,
  operatorEntries,
  TAKEN_UNSEEN,
  tell,
  type Unknown,
  unknownCharge,
} from '../support/operators.js';

let system: TestSystem;
let hearing: TestInstance;
beforeAll(async () => {
  system = await TestSystem.start(DEAF);
  hearing = await system.join(HEARING);
});
afterAll(() => system.close());

const run = (...args: string[]): Promise<string> => operate(system, ...args);

/** What is refused changes nothing: every table is as it was. */
async function refused(...args: string[]): Promise<string> {
  const before = await everything();
  const error = await run(...args).then(
    (printed) => new Error(`not refused: ${printed}`),
    (reason: unknown) => reason,
  );
  expect(isRefusal(error), String(error)).toBe(true);
  expect(await everything()).toEqual(before);
  return (error as Error).message;
}

async function everything(): Promise<unknown[]> {
  const tables = ['payment', 'operation', 'idempotency_record', 'outbox_event', 'anomaly', 'provider_event'];
  return Promise.all(
    [...tables, 'timeline_entry'].map((table) =>
      system.query(`select to_jsonb(t) as row from ${table} t order by t::text`),
    ),
  );
}

/** The provider's id of a charge that it took without telling. */
async function providerIdOf(payment: Pick<Unknown, 'external_payment_id'>): Promise<string> {
  const [movement] = await ledger(system, payment);
  return movement!.payment_id;
}

async function operationRow(id: string) {
  const [row] = await system.query<{
    status: string;
    resolved_by: string | null;
    needs_review_at: Date | null;
    closed_at: Date | null;
    check_at: Date | null;
  }>('select * from operation where id = $1', [id]);
  return row!;
}

async function anomaliesOf(payment_id: string): Promise<string[]> {
  const found = await system.query<{ kind: string }>('select kind from anomaly where payment_id = $1 order by id', [
    payment_id,
  ]);
  return found.map(({ kind }) => kind);
}

const WORD = ['--reason', 'seen at the dashboard', '--by', 'anna'];
const FAILED = ['--outcome', 'failed', '--evidence', 'no trace of it', ...WORD];
const succeeded = (evidence: string): string[] => ['--outcome', 'succeeded', '--evidence', evidence, ...WORD];

describe('list', () => {
  it('shows what needs an operator, what is unknown for a while, anomalies and parked events, nothing else', async () => {
    const fine = await made(system);
    const fresh = await unknownCharge(system, LOST);
    const old = await unknownCharge(system, LOST);
    await age(system, old.operation_id, 1);
    const stuck = await unknownCharge(system, LOST);
    await system.query('update operation set needs_review_at = now(), check_at = null where id = $1', [
      stuck.operation_id,
    ]);
    await system.simulator.next(fine.provider_payment_id, 'refund', 'pm_async_success_600000');
    const pending = await refund(system, fine.id).expect(202);
    await age(system, pending.body.id, 1);
    await system.query(
      `insert into anomaly (id, payment_id, kind, detail) values ($1, $2, 'paid_twice', '{"other": "x y"}')`,
      [uuidv7(), fine.id],
    );
    await insertParked('evt_poison');

    const printed = await run('list');
    const [review = '', unknown = '', anomalies = '', parked = ''] = printed.split(/\n(?=\S)/);
    expect(review).toMatch(/^Needs an operator: 1\n/);
    expect(review).toContain(`${stuck.operation_id}  charge 10.00 EUR (processing)`);
    expect(review).toContain(`payment ${stuck.id} "${stuck.external_payment_id}" of default at sandbox`);
    expect(unknown).toMatch(/^Outcome unknown for more than 60 s: 2\n/);
    expect(unknown).toContain(old.operation_id);
    expect(unknown).toContain(`${pending.body.id}  refund 10.00 EUR`);
    expect(anomalies).toMatch(new RegExp(`paid_twice since .*payment ${fine.id}.*other="x y"`));
    expect(parked).toMatch(/payment.succeeded evt_poison of sandbox since .* failed 8 times: it broke/);
    expect(printed).not.toContain(fresh.operation_id);
    expect(await run('list', '--older-than', '0')).toContain(fresh.operation_id);
    expect(await run('list', '--limit', '1')).toMatch(/more than 60 s: more than 1\n[^\n]*\n {2}…/);
  });

  it('shows what a killed process left behind, whose lease nobody holds', async () => {
    const payment = await made(system, { capture: 'manual' });
    const paused = hearing.holdAt('begun');
    const capturing = capture(system, payment.id, undefined, { instance: hearing }).then((answer) => answer);
    const operation_id = await paused.reached;
    await age(system, operation_id, 1);
    expect(await run('list')).toContain(`${operation_id}  capture 10.00 EUR`);
    paused.release();
    expect((await capturing).status).toBe(200);
    expect(await run('list')).not.toContain(operation_id);
  });
});

async function insertParked(event_id: string): Promise<string> {
  const id = uuidv7();
  await system.query(
    `insert into provider_event (id, provider, event_id, type, outcome, failures, last_error)
     values ($1, 'sandbox', $2, 'payment.succeeded', 'parked', 8, 'it broke')`,
    [id, event_id],
  );
  return id;
}

describe('show', () => {
  it('shows an operation, its payment and all that happened', async () => {
    const payment = await made(system);
    const given = await refund(system, payment.id, { amount: '2.50', reason: 'late delivery' }).expect(201);
    const printed = await run('show', given.body.id.toUpperCase());
    expect(printed).toContain(`Operation ${given.body.id}\n  kind: refund`);
    expect(printed).toMatch(/amount: "2.50 EUR"[^]*provider_refund_id: sbx_ref_[^]*attempts: "1 started, 1 finished"/);
    expect(printed).toMatch(new RegExp(`Payment ${payment.id}\\n {2}status: succeeded[^]*refunded: "2.50 EUR"`));
    expect(printed).toMatch(
      /Timeline\n[^]* {2}\S+Z {2}attempt {2}\S+ {2}.*duration_ms=\d+.*outcome=succeeded|outcome=succeeded/,
    );
    expect(await run('show', payment.id)).toMatch(/^Payment [^]*Timeline/);
  });

  it('knows an anomaly by its payment', async () => {
    const payment = await made(system);
    const id = uuidv7();
    await system.query(`insert into anomaly (id, payment_id, kind) values ($1, $2, 'paid_twice')`, [id, payment.id]);
    expect(await run('show', id)).toContain(`Payment ${payment.id}`);
    expect(await refused('show', await insertParked(randomUUID()))).toMatch(/concerns no payment of ours/);
  });
});

describe('retry', () => {
  it('has it asked about at once, from the beginning of its patience, and is recorded', async () => {
    const charge = await unknownCharge(system, 'pm_commit_then_error+pm_lookup_lag_4000');
    await system.query(`update operation set needs_review_at = now(), check_at = null, checks = 99 where id = $1`, [
      charge.operation_id,
    ]);
    const printed = await run('retry', charge.operation_id, '--by', 'anna', '--reason', 'provider is back');
    expect(printed).toContain('at once');
    const due = 'select checks, needs_review_at, check_at <= clock_timestamp() as is_due from operation where id = $1';
    expect(await system.query(due, [charge.operation_id])).toEqual([
      { checks: 0, needs_review_at: null, is_due: true },
    ]);
    expect(await operatorEntries(system, charge.id)).toEqual([
      { action: 'retry', by: 'anna', reason: 'provider is back' },
    ]);

    const jobs = hearing.startJobs();
    const answer = await system.chargeUntilFinal(charge.body, { key: charge.key });
    await jobs.stop();
    expect(answer.body).toMatchObject({ id: charge.id, status: 'succeeded' });
    expect(await moved(system, charge)).toEqual(['charge 1000']);
  });

  it('names the user of the machine where it is not told who', async () => {
    const charge = await unknownCharge(system, LOST);
    await run('retry', charge.operation_id);
    expect(await operatorEntries(system, charge.id)).toEqual([{ action: 'retry', by: 'tester@here', reason: null }]);
  });

  it('of what has ended, or is no operation, is refused', async () => {
    const payment = await made(system);
    const given = await refund(system, payment.id).expect(201);
    expect(await refused('retry', given.body.id)).toMatch(/refund is succeeded: there is nothing to ask/);
    expect(await refused('retry', payment.id)).toMatch(/is a payment; retry takes an operation/);
  });
});

describe('resolve as succeeded', () => {
  it('settles a charge on the ordinary path: every waiting answer, events, timeline; nothing is sent', async () => {
    const charge = await unknownCharge(system, TAKEN_UNSEEN);
    const otherKey = randomUUID();
    await system.charge(charge.body, { key: otherKey }).expect(202);
    const evidence = await providerIdOf(charge);
    const calls = (await system.simulator.calls()).length;

    expect(await run('resolve', charge.operation_id, ...succeeded(evidence))).toBe(
      `Operation ${charge.operation_id} is succeeded; payment ${charge.id} is succeeded.`,
    );
    const answer = await system.charge(charge.body, { key: charge.key }).expect(201);
    expect(answer.headers['idempotent-replayed']).toBe('true');
    expect(answer.body).toMatchObject({
      id: charge.id,
      status: 'succeeded',
      amount_captured: '10.00',
      provider_payment_id: evidence,
    });
    expect((await system.charge(charge.body, { key: otherKey }).expect(200)).text).toBe(answer.text);
    expect(await eventTypes(system, charge.id)).toEqual(['PaymentSucceeded.v1']);
    expect(await operatorEntries(system, charge.id)).toEqual([
      { action: 'resolve', outcome: 'succeeded', evidence, reason: 'seen at the dashboard', by: 'anna' },
    ]);
    expect(await operationRow(charge.operation_id)).toMatchObject({
      status: 'succeeded',
      resolved_by: 'anna',
      needs_review_at: null,
      check_at: null,
    });
    const { body: timeline } = await get(system, `/payments/${charge.id}/timeline`);
    expect(timeline.data).toContainEqual(
      expect.objectContaining({
        type: 'state_change',
        detail: expect.objectContaining({ from: 'processing', to: 'succeeded', cause: 'operator' }),
      }),
    );
    expect((await system.simulator.calls()).length).toBe(calls);

    // What the provider tells afterwards is no news.
    await tell(system, hearing, evidence, 'payment.succeeded');
    expect(await eventTypes(system, charge.id)).toEqual(['PaymentSucceeded.v1']);
    expect(await anomaliesOf(charge.id)).toEqual([]);
    expect(await moved(system, charge)).toEqual(['charge 1000']);
  });

  it('an authorization is authorized by it, and goes on from there', async () => {
    const charge = await unknownCharge(system, TAKEN_UNSEEN, { capture: 'manual' });
    await run('resolve', charge.operation_id, ...succeeded(await providerIdOf(charge)));
    expect((await get(system, `/payments/${charge.id}`)).body.status).toBe('authorized');
    await capture(system, charge.id, { amount: '4.00' }).expect(200);
    expect(await moved(system, charge)).toEqual(['authorization 1000', 'capture 400']);
  });

  it.each(['capture', 'cancel'] as const)('a %s that hangs', async (kind) => {
    const payment = await made(system, { capture: 'manual' });
    await system.simulator.next(payment.provider_payment_id, kind, 'pm_async_success_600000');
    const key = randomUUID();
    const ask = () => (kind === 'capture' ? capture : cancel)(system, payment.id, undefined, { key });
    await ask().expect(202);
    const { operations } = await rows(system, payment.id);
    await run('resolve', operations[0]!.id, ...succeeded('the dashboard shows it as done'));
    const answer = await ask().expect(200);
    expect(answer.body.status).toBe(kind === 'capture' ? 'succeeded' : 'canceled');
    expect((await operationRow(operations[0]!.id)).resolved_by).toBe('anna');
    await system.simulator.complete(payment.provider_payment_id, 'succeeded');
    await tell(system, hearing, payment.provider_payment_id, `payment.${answer.body.status}`);
    expect(await anomaliesOf(payment.id)).toEqual([]);
    expect(await moved(system, payment)).toEqual(['authorization 1000', `${kind} 1000`]);
  });

  it('a refund; the id that the provider gave it before has to agree', async () => {
    const payment = await made(system);
    await system.simulator.next(payment.provider_payment_id, 'refund', 'pm_async_success_600000');
    const key = randomUUID();
    const pending = await refund(system, payment.id, { amount: '3.00' }, { key }).expect(202);
    const known = pending.body.provider_refund_id;
    expect(await refused('resolve', pending.body.id, ...succeeded('sbx_ref_other'))).toMatch(
      `The provider has called this refund ${known} before`,
    );
    await run('resolve', pending.body.id, ...succeeded(known));
    expect((await refund(system, payment.id, { amount: '3.00' }, { key }).expect(201)).body.status).toBe('succeeded');
    expect((await rows(system, payment.id)).payment).toMatchObject({
      amount_refunded_minor: 300n,
      refund_reserved_minor: 300n,
    });
  });

  it('wants the provider’s id as evidence, and one that is nobody else’s', async () => {
    const other = await made(system);
    const charge = await unknownCharge(system, LOST);
    expect(await refused('resolve', charge.operation_id, ...succeeded('I saw it there'))).toMatch(
      /the provider's id of it/,
    );
    expect(await refused('resolve', charge.operation_id, ...succeeded(other.provider_payment_id))).toMatch(
      `${other.provider_payment_id} is the charge`,
    );
    const given = await refund(system, other.id, { amount: '1.00' }).expect(201);
    const second = await lostRefund(other.provider_payment_id, other.id);
    expect(await refused('resolve', second, ...succeeded(given.body.provider_refund_id))).toMatch(
      `is the refund ${given.body.id} of this payment already`,
    );
  });

  it('never makes another amount than asked "paid"', async () => {
    const charge = await unknownCharge(system, 'pm_other_amount_400');
    expect(await run('list')).toContain(charge.operation_id);
    expect(await anomaliesOf(charge.id)).toEqual(['amount_mismatch']);
    expect(await refused('resolve', charge.operation_id, ...succeeded(await providerIdOf(charge)))).toMatch(
      /another amount or currency than was asked for/,
    );
    await age(system, charge.operation_id, 25);
    await run('resolve', charge.operation_id, ...FAILED);
    expect((await get(system, `/payments/${charge.id}`)).body.status).toBe('failed');
  });
});

/** A refund of 1.00 that never reaches the provider. @returns the operation's id */
async function lostRefund(provider_payment_id: string, payment_id: string): Promise<string> {
  await system.simulator.next(provider_payment_id, 'refund', LOST);
  return (await refund(system, payment_id, { amount: '1.00' }).expect(202)).body.id;
}

describe('resolve as failed', () => {
  it('is taken only past the provider’s memory of keys, with no attempt open', async () => {
    const charge = await unknownCharge(system, LOST);
    expect(await refused('resolve', charge.operation_id, ...FAILED)).toMatch(
      /Too early for failed: sandbox remembers keys for 24 h.*first attempt was 0 min ago/,
    );
    await age(system, charge.operation_id, 23);
    expect(await refused('resolve', charge.operation_id, ...FAILED)).toMatch(/first attempt was 23 h ago/);
    await age(system, charge.operation_id, 25);
    await system.query(
      `update operation set attempts_started = attempts_started + 1, last_attempt_at = now() - interval '3 hours'
       where id = $1`,
      [charge.operation_id],
    );
    expect(await refused('resolve', charge.operation_id, ...FAILED)).toMatch(
      /an attempt of 3 h ago has no recorded end/,
    );
    // The age says that it is over.
    await age(system, charge.operation_id, 25);
    await run('resolve', charge.operation_id, ...FAILED);

    const answer = await system.charge(charge.body, { key: charge.key }).expect(201);
    expect(answer.body).toMatchObject({ id: charge.id, status: 'failed', failure: { code: 'processing_error' } });
    const row = await operationRow(charge.operation_id);
    expect(row).toMatchObject({ status: 'failed', resolved_by: 'anna', needs_review_at: null, check_at: null });
    expect(row.closed_at).not.toBeNull();
    expect(await eventTypes(system, charge.id)).toEqual(['PaymentFailed.v1']);
    expect(await operatorEntries(system, charge.id)).toMatchObject([{ outcome: 'failed', evidence: 'no trace of it' }]);
    expect(await moved(system, charge)).toEqual([]);
  });

  it('lets the client pay again; what turns out to have succeeded after all is an anomaly, twice paid too', async () => {
    const charge = await unknownCharge(system, TAKEN_UNSEEN);
    await age(system, charge.operation_id, 25);
    await run('resolve', charge.operation_id, ...FAILED);
    const again = await system.charge({ ...charge.body, payment_method: 'pm_success' }).expect(201);
    expect(again.body).toMatchObject({ id: charge.id, status: 'succeeded' });

    await tell(system, hearing, await providerIdOf(charge), 'payment.succeeded');
    expect(await anomaliesOf(charge.id)).toEqual(['late_success', 'paid_twice']);
    const { updated_at, ...unchanged } = again.body;
    expect((await get(system, `/payments/${charge.id}`)).body).toMatchObject(unchanged);
    expect(updated_at).toBeDefined();
    const printed = await run('list');
    expect(printed).toMatch(new RegExp(`late_success since .*payment ${charge.id}.*resolved_by=anna`));
    expect(printed).toMatch(new RegExp(`paid_twice since .*payment ${charge.id}`));
    expect(await moved(system, charge)).toEqual(['charge 1000', 'charge 1000']);
  });

  it('a late success of what nobody paid again makes the payment succeeded, as an anomaly', async () => {
    const charge = await unknownCharge(system, TAKEN_UNSEEN);
    await age(system, charge.operation_id, 25);
    await run('resolve', charge.operation_id, ...FAILED);
    await tell(system, hearing, await providerIdOf(charge), 'payment.succeeded');
    expect(await anomaliesOf(charge.id)).toEqual(['late_success']);
    expect((await get(system, `/payments/${charge.id}`)).body).toMatchObject({
      status: 'succeeded',
      amount_captured: '10.00',
    });
    expect(await eventTypes(system, charge.id)).toEqual(
      expect.arrayContaining(['PaymentFailed.v1', 'PaymentSucceeded.v1', 'PaymentAnomalyDetected.v1']),
    );
  });

  it('a refund frees its amount; a late success counts again, as an anomaly', async () => {
    const payment = await made(system);
    await system.simulator.next(payment.provider_payment_id, 'refund', TAKEN_UNSEEN);
    const pending = await refund(system, payment.id, { amount: '8.00' }).expect(202);
    expect((await rows(system, payment.id)).payment.refund_reserved_minor).toBe(800n);
    await age(system, pending.body.id, 25);
    await run('resolve', pending.body.id, ...FAILED);
    expect((await rows(system, payment.id)).payment.refund_reserved_minor).toBe(0n);
    expect((await get(system, `/refunds/${pending.body.id}`)).body.status).toBe('failed');

    await tell(system, hearing, payment.provider_payment_id, 'refund.succeeded');
    expect(await anomaliesOf(payment.id)).toEqual(['late_success']);
    expect((await get(system, `/refunds/${pending.body.id}`)).body.status).toBe('succeeded');
    expect((await rows(system, payment.id)).payment).toMatchObject({
      amount_refunded_minor: 800n,
      refund_reserved_minor: 800n,
    });
  });

  it.each(['capture', 'cancel'] as const)(
    'a %s leaves the authorization; that it happened after all is an anomaly',
    async (kind) => {
      const payment = await made(system, { capture: 'manual' });
      await system.simulator.next(payment.provider_payment_id, kind, 'pm_async_success_600000');
      const key = randomUUID();
      const ask = () => (kind === 'capture' ? capture : cancel)(system, payment.id, undefined, { key });
      await ask().expect(202);
      const operation_id = (await rows(system, payment.id)).operations[0]!.id;
      await age(system, operation_id, 25);
      await run('resolve', operation_id, ...FAILED);
      expect((await ask().expect(409)).body).toMatchObject({
        code: 'invalid_payment_state',
        payment_status: 'authorized',
        failure_code: 'processing_error',
      });
      await system.simulator.complete(payment.provider_payment_id, 'succeeded');
      await tell(
        system,
        hearing,
        payment.provider_payment_id,
        kind === 'capture' ? 'payment.succeeded' : 'payment.canceled',
      );
      expect(await anomaliesOf(payment.id)).toEqual(['late_success']);
      expect((await get(system, `/payments/${payment.id}`)).body.status).toBe(
        kind === 'capture' ? 'succeeded' : 'canceled',
      );
      expect((await operationRow(operation_id)).status).toBe('succeeded');
    },
  );

  it('a second operator finds it settled; what has ended can’t be resolved', async () => {
    const charge = await unknownCharge(system, LOST);
    await age(system, charge.operation_id, 25);
    const both = await Promise.allSettled([
      run('resolve', charge.operation_id, ...FAILED),
      run('resolve', charge.operation_id, ...FAILED),
    ]);
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(await operatorEntries(system, charge.id)).toHaveLength(1);
    expect(await refused('resolve', charge.operation_id, ...succeeded('sbx_pay_late'))).toMatch(/is failed already/);
  });
});

it('a request that is still at it sends the answer that the operator has written', async () => {
  const payment = await made(system, { capture: 'manual' });
  const paused = system.first.holdAt('begun');
  const capturing = capture(system, payment.id, undefined).then((answer) => answer);
  const operation_id = await paused.reached;
  await run('resolve', operation_id, ...succeeded('seen there'));
  paused.release();
  const answer = await capturing;
  expect(answer.status).toBe(200);
  expect(answer.body).toMatchObject({ status: 'succeeded', amount_captured: '10.00' });
});

describe('anomalies and parked events', () => {
  it('can be marked as resolved, once, with name and reason; no money moves', async () => {
    const payment = await made(system);
    const id = uuidv7();
    await system.query(`insert into anomaly (id, payment_id, kind) values ($1, $2, 'paid_twice')`, [id, payment.id]);
    await run('resolve', id, '--reason', 'given back by hand', '--evidence', 're_1', '--by', 'anna');
    expect(await system.query('select resolved_by, resolution from anomaly where id = $1', [id])).toEqual([
      { resolved_by: 'anna', resolution: 'given back by hand (re_1)' },
    ]);
    expect(await operatorEntries(system, payment.id)).toMatchObject([
      { action: 'resolve_anomaly', anomaly_id: id, kind: 'paid_twice', reason: 'given back by hand', by: 'anna' },
    ]);
    expect(await run('list')).not.toContain(id);
    expect(await refused('resolve', id, ...WORD)).toMatch(/resolved already/);
    expect(await moved(system, payment)).toEqual(['charge 1000']);
  });

  it('also one of no payment of ours', async () => {
    const id = uuidv7();
    await system.query(`insert into anomaly (id, kind) values ($1, 'unknown_operation')`, [id]);
    expect(await run('list')).toMatch(new RegExp(`${id} {2}unknown_operation since .*no payment of ours`));
    await run('resolve', id, ...WORD);
    expect(await run('list')).not.toContain(id);
  });

  it('a parked event leaves the list, and is applied as ever should the provider send it again', async () => {
    const charge = await unknownCharge(system, TAKEN_UNSEEN);
    const provider_payment_id = await providerIdOf(charge);
    const event = (await system.simulator.events()).find(({ body }) => body.data.payment.id === provider_payment_id)!;
    const id = await insertParked(event.id);
    await run('resolve', id, ...WORD);
    expect(await run('list')).not.toContain(id);
    expect(await system.query('select outcome, last_error from provider_event where id = $1', [id])).toEqual([
      { outcome: 'ignored', last_error: 'it broke; set aside by anna: seen at the dashboard' },
    ]);
    expect(await refused('resolve', id, ...WORD)).toMatch(/not parked/);
    await tell(system, hearing, provider_payment_id, 'payment.succeeded');
    expect((await get(system, `/payments/${charge.id}`)).body.status).toBe('succeeded');
  });
});

it('what is not understood is refused, and nothing changes', async () => {
  const charge = await unknownCharge(system, LOST);
  const payment = await made(system);
  const anomaly = uuidv7();
  await system.query(`insert into anomaly (id, payment_id, kind) values ($1, $2, 'paid_twice')`, [anomaly, payment.id]);
  const nothing = uuidv7();
  const cases: [string[], RegExp][] = [
    [[], /A command is missing/],
    [['lst'], /There is no command "lst"/],
    [['list', 'now'], /What is "now" for/],
    [['list', '--limit', '0'], /--limit is a whole number from 1 to 10000/],
    [['list', '--older-than', '1e3'], /--older-than is a whole number/],
    [['show'], /needs more words/],
    [['show', 'order-1'], /"order-1" is no id/],
    [['show', nothing], /There is no operation, payment, anomaly or provider event/],
    [['retry', nothing], /There is no operation, payment/],
    [['retry', charge.operation_id, '--outcome', 'failed'], /Unknown option '--outcome'/],
    [['resolve', nothing, ...FAILED], /There is no operation, payment/],
    [['resolve', payment.id, ...FAILED], /is a payment; resolve takes/],
    [['resolve', charge.operation_id, '--outcome', 'failed', '--evidence', 'x', '--by', 'anna'], /--reason is needed/],
    [['resolve', charge.operation_id, '--outcome', 'failed', '--evidence', 'x', '--reason', 'y'], /--by is needed/],
    [['resolve', charge.operation_id, '--evidence', 'x', ...WORD], /--outcome is needed/],
    [['resolve', charge.operation_id, '--outcome', 'succeeded', ...WORD], /--evidence is needed/],
    [['resolve', charge.operation_id, '--outcome', 'void', '--evidence', 'x', ...WORD], /succeeded or failed/],
    [['resolve', charge.operation_id, ...succeeded('  ')], /--evidence must be 1 to 500 characters/],
    [['resolve', charge.operation_id, ...succeeded('a\nb')], /--evidence must be one line/],
    [['resolve', charge.operation_id, ...succeeded('4242 4242 4242 4242')], /looks like it holds a card number/],
    [
      [
        'resolve',
        charge.operation_id,
        '--outcome',
        'failed',
        '--evidence',
        'x',
        '--reason',
        'y',
        '--by',
        'z'.repeat(101),
      ],
      /--by has at most 100/,
    ],
    [['resolve', anomaly, ...FAILED], /is an anomaly: --outcome is for operations/],
  ];
  for (const [args, message] of cases) expect(await refused(...args), args.join(' ')).toMatch(message);
});

describe('the command line', () => {
  const MAIN = fileURLToPath(new URL('../../src/operations/main.ts', import.meta.url));

  function main(
    args: readonly string[],
    env: NodeJS.ProcessEnv,
  ): Promise<{ code: number | null; out: string; err: string }> {
    const child = spawn(process.execPath, ['--import', 'tsx', MAIN, ...args], { env: { ...process.env, ...env } });
    let [out, err] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()));
    return new Promise((resolve) => child.once('close', (code) => resolve({ code, out, err })));
  }

  const LIMIT_MS = 120_000;
  it(
    'ends with 0 when it was done, 2 for what is unknown or refused, 1 where there is no database',
    async () => {
      const [charge, young] = [await unknownCharge(system, LOST), await unknownCharge(system, LOST)];
      await age(system, charge.operation_id, 25);
      const { env } = system.address;
      const [listed, shown, early, settled, misspelt, away, help] = await Promise.all([
        main(['list', '--older-than', '0'], env),
        main(['show', young.operation_id], env),
        main(['resolve', young.operation_id, ...FAILED], env),
        main(['resolve', charge.operation_id, ...FAILED], env),
        main(['lits'], env),
        main(['list'], { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/nothing' }),
        main(['--help'], {}),
      ]);
      expect(listed).toMatchObject({ code: 0, err: '', out: expect.stringContaining(young.operation_id) });
      expect(shown).toMatchObject({ code: 0, err: '', out: expect.stringContaining('Timeline') });
      expect(early).toMatchObject({ code: 2, out: '', err: expect.stringMatching(/^Too early for failed: .*\n$/) });
      expect(settled).toMatchObject({ code: 0, err: '', out: expect.stringContaining('is failed; payment') });
      const again = await system.charge(charge.body, { key: charge.key }).expect(201);
      expect(again.body.status).toBe('failed');
      expect(misspelt).toEqual({ code: 2, out: '', err: `There is no command "lits".\n\n${USAGE}\n` });
      expect(away).toMatchObject({
        code: 1,
        out: '',
        err: expect.stringMatching(/^The database can't be reached: .*\n$/),
      });
      expect(help).toEqual({ code: 0, out: `${USAGE}\n`, err: '' });
    },
    LIMIT_MS,
  );
});
