import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { reconcileRound } from '../../src/jobs/reconciliation.js';
import { recoverRound } from '../../src/jobs/recovery.js';
import { changePayment } from '../../src/payments/change-payment.js';
import { conclude } from '../../src/payments/conclude.js';
import { type PaymentProvider, ProviderError } from '../../src/providers/provider.js';
import { claimDue } from '../../src/store/operations.js';
import { newCharge, type TestInstance, TestSystem } from '../support/app.js';
import { chargeFact } from '../support/domain.js';
import { checkInvariants } from '../support/invariants.js';
import { soon } from '../support/soon.js';

let system: TestSystem;
let other: TestInstance;
beforeAll(async () => {
  system = await TestSystem.start({ env: { PROVIDER_TIMEOUT_MS: '300', RECONCILE_INTERVAL_MS: '60000' } });
  other = await system.join();
});
afterAll(() => system.close(checkInvariants));

/** As if the time until the next look at a payment's operations had passed. */
async function makeDue(external_payment_id: string): Promise<void> {
  await system.query(
    `update operation set check_at = clock_timestamp()
     where check_at is not null and payment_id in (select id from payment where external_payment_id = $1)`,
    [external_payment_id],
  );
}

/** As if the first attempt had been so long ago. */
async function makeOld(external_payment_id: string, hours: number): Promise<void> {
  await system.query(
    `update operation set first_attempt_at = first_attempt_at - $2 * interval '1 hour'
     where payment_id in (select id from payment where external_payment_id = $1)`,
    [external_payment_id, hours],
  );
}

async function checksOf(external_payment_id: string) {
  const rows = await system.query<{ checks: number; check_at: Date | null; in_ms: number }>(
    `select o.checks, o.check_at, (extract(epoch from o.check_at - clock_timestamp()) * 1000)::float8 as in_ms
     from operation o join payment p on p.id = o.payment_id where p.external_payment_id = $1 order by o.try_number`,
    [external_payment_id],
  );
  return rows;
}

/** A charge that the provider never got: it was stopped while the request was on its way. */
async function lostRequest(): Promise<{ body: ReturnType<typeof newCharge>; key: string }> {
  const body = newCharge();
  const key = randomUUID();
  system.simulator.pause();
  await system.charge(body, { key }).expect(202);
  await system.simulator.kill();
  await system.restartSimulator();
  expect(await system.calls(body.external_payment_id)).toEqual([]);
  return { body, key };
}

describe('an operation that the provider has never heard of', () => {
  it('is sent again with the same provider key while the provider remembers keys', async () => {
    const { body, key } = await lostRequest();
    await makeOld(body.external_payment_id, 21);
    await makeDue(body.external_payment_id);
    await reconcileRound(other.payments);
    expect((await system.charge(body, { key }).expect(201)).body.status).toBe('succeeded');
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    const [operation] = (await system.rowsOf(body.external_payment_id)).operations;
    expect(operation!.attempts_started).toBeGreaterThan(operation!.attempts_finished - 1);
  });

  it('is only asked about past that, and then shown to operators: still processing, its key still open', async () => {
    const { body, key } = await lostRequest();
    await makeOld(body.external_payment_id, 24);
    await makeDue(body.external_payment_id);
    await reconcileRound(other.payments);

    const calls = await system.calls(body.external_payment_id);
    expect(calls.filter(({ operation }) => operation === 'charge')).toEqual([]);
    const { operations, events } = await system.rowsOf(body.external_payment_id);
    expect(operations).toMatchObject([{ status: 'processing', needs_review_at: expect.any(Date) }]);
    expect(events).toEqual([]);
    expect(await checksOf(body.external_payment_id)).toMatchObject([{ check_at: null }]);
    expect((await system.charge(body, { key }).expect(202)).body.status).toBe('processing');
    expect(await system.movements(body.external_payment_id)).toEqual([]);
    // Nor does another key of the same command send it.
    await system.charge(body).expect(202);
    expect(await system.movements(body.external_payment_id)).toEqual([]);
  });

  it('is not sent past that by a retry that takes the lease over either', async () => {
    const body = newCharge();
    const key = randomUUID();
    const held = system.first.holdAt('begun');
    const first = system.charge(body, { key }).then((answer) => answer);
    await held.reached;
    await makeOld(body.external_payment_id, 24);
    await system.expireLease(key);
    expect((await system.charge(body, { key, instance: other }).expect(202)).body.status).toBe('processing');
    expect((await system.calls(body.external_payment_id)).filter(({ operation }) => operation === 'charge')).toEqual(
      [],
    );
    expect((await system.rowsOf(body.external_payment_id)).operations[0]!.needs_review_at).not.toBeNull();
    // A process that slept through all this would send here: assumption A2 of the design. It is not woken.
    void first;
  });

  it('ends when the provider tells of it after all, and leaves the operators’ list', async () => {
    const { body, key } = await lostRequest();
    await makeOld(body.external_payment_id, 24);
    await makeDue(body.external_payment_id);
    await reconcileRound(other.payments);
    const [row] = await system.query<{ id: string; payment_id: string }>(
      `select o.id, o.payment_id from operation o join payment p on p.id = o.payment_id where p.external_payment_id = $1`,
      [body.external_payment_id],
    );
    await changePayment(other.payments, {
      payment_id: row!.payment_id,
      cause: 'webhook',
      fact: {
        operation_id: row!.id,
        fact: chargeFact({ status: 'failed', provider_payment_id: 'sbx_pay_told', closed: true }),
      },
    });
    const { operations } = await system.rowsOf(body.external_payment_id);
    expect(operations).toMatchObject([{ status: 'failed', needs_review_at: null }]);
    expect((await system.charge(body, { key }).expect(201)).body).toMatchObject({ status: 'failed' });
  });
});

describe('a second attempt that surely moves nothing', () => {
  it('“it never happened” of one job counts for nothing where another has begun an attempt meanwhile', async () => {
    const { body, key } = await lostRequest();
    const [operation] = (await system.rowsOf(body.external_payment_id)).operations;
    const [payment] = (await system.rowsOf(body.external_payment_id)).payments;
    await system.query('update operation set attempts_started = 2 where id = $1', [operation!.id]);
    const failure = { code: 'provider_rejected', message: 'The provider refused the request.' } as const;
    const run = { lease: null, payment_id: payment!.id, operation_id: operation!.id, cause: 'reconciliation' } as const;
    const refused = {
      outcome: { type: 'never_happened', failure },
      attempts: [],
      sent: 1,
      needs_review: false,
    } as const;

    await conclude(system.first.payments, run, refused);
    expect((await system.rowsOf(body.external_payment_id)).operations).toMatchObject([{ status: 'processing' }]);

    await makeDue(body.external_payment_id);
    await reconcileRound(system.first.payments);
    expect((await system.chargeUntilFinal(body, { key })).body).toMatchObject({ status: 'succeeded' });
  });

  it.each(['refused', 'not_sent'] as const)(
    '(%s) does not fail a charge whose first may still be under way',
    async (kind) => {
      const { body, key } = await lostRequest();
      const refusing = await system.join({
        wrapProvider: (provider) => ({
          ...provider,
          charge: () => Promise.reject(new ProviderError(kind, 'test', 'no')),
        }),
      });
      await makeDue(body.external_payment_id);
      await reconcileRound(refusing.payments);
      const { operations } = await system.rowsOf(body.external_payment_id);
      expect(operations).toMatchObject([{ status: 'processing' }]);
      expect(operations[0]!.attempts_started).toBeGreaterThan(1);
      expect((await system.charge(body, { key }).expect(202)).body.status).toBe('processing');

      await makeDue(body.external_payment_id);
      await reconcileRound(other.payments);
      expect((await system.charge(body, { key }).expect(201)).body.status).toBe('succeeded');
      expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    },
  );
});

describe('a try before that took the money after all', () => {
  it('although it was taken for closed: the new try is not sent', async () => {
    const body = newCharge({ payment_method: 'pm_decline_card_declined' });
    const { body: declined } = await system.charge(body).expect(201);
    const key = randomUUID();
    const again = { ...body, payment_method: 'pm_success' };
    const held = system.first.holdAt('begun');
    const paid = system.charge(again, { key }).then((answer) => answer);
    await held.reached;
    const [first] = (await system.rowsOf(body.external_payment_id)).operations;
    await system.query('update operation set closed_at = clock_timestamp() where id = $1', [first!.id]);
    await changePayment(other.payments, {
      payment_id: declined.id,
      cause: 'webhook',
      fact: { operation_id: first!.id, fact: chargeFact({ provider_payment_id: declined.provider_payment_id }) },
    });
    held.release();
    expect(await paid).toMatchObject({ status: 201, body: { id: declined.id, status: 'succeeded' } });
    expect((await system.rowsOf(body.external_payment_id)).operations.map(({ status }) => status)).toEqual([
      'succeeded',
      'void',
    ]);
    expect(
      (await system.calls(body.external_payment_id)).filter(({ operation }) => operation === 'charge'),
    ).toHaveLength(1);
    // Our own invention above, that the provider knows nothing of: taken back, so that what is looked at in the end is true.
    await system.query(`update operation set status = 'failed' where id = $1`, [first!.id]);
  });
});

describe('how often it asks', () => {
  it('less and less often, and not before its time', async () => {
    const body = newCharge({ payment_method: 'pm_async_success_600000' });
    await system.charge(body).expect(202);
    const pauses: number[] = [];
    for (let n = 0; n < 5; n += 1) {
      await makeDue(body.external_payment_id);
      await reconcileRound(other.payments);
      const [row] = await checksOf(body.external_payment_id);
      expect(row!.checks).toBe(n + 1);
      pauses.push(row!.in_ms);
      expect(await claimDue(other.database.pool, 100, 1)).toEqual([]);
    }
    // Half of a pause is random: it lies between half and all of what doubles.
    for (const [n, pause] of pauses.entries()) {
      const whole = Math.min(60_000 * 2 ** (n + 1), 15 * 60_000);
      expect(pause).toBeGreaterThan(whole / 2 - 5_000);
      expect(pause).toBeLessThanOrEqual(whole);
    }
    const [operation] = (await system.rowsOf(body.external_payment_id)).operations;
    expect(operation).toMatchObject({ attempts_started: 1, attempts_finished: 1 });
  });

  it('in the end not at all: an operation that stays unknown is shown to operators', async () => {
    const body = newCharge({ payment_method: 'pm_async_success_600000' });
    const key = randomUUID();
    await system.charge(body, { key }).expect(202);
    await system.query(
      `update operation set checks = 29 where payment_id in (select id from payment where external_payment_id = $1)`,
      [body.external_payment_id],
    );
    await makeDue(body.external_payment_id);
    await reconcileRound(other.payments);
    const { operations } = await system.rowsOf(body.external_payment_id);
    expect(operations).toMatchObject([{ status: 'processing', needs_review_at: expect.any(Date) }]);
    expect(await checksOf(body.external_payment_id)).toMatchObject([{ check_at: null }]);
    expect((await system.charge(body, { key }).expect(202)).body.status).toBe('processing');
  });

  it('one instance asks about an operation at a time', async () => {
    const bodies = Array.from({ length: 15 }, () => newCharge({ payment_method: 'pm_async_success_600000' }));
    for (const body of bodies) await system.charge(body).expect(202);
    for (const body of bodies) await makeDue(body.external_payment_id);
    const claimed = await Promise.all(
      Array.from({ length: 12 }, (_, n) => claimDue((n % 2 === 0 ? other : system.first).database.pool, 4, 60_000)),
    );
    const ids = claimed.flat().map(({ id }) => id);
    expect(ids).toHaveLength(15);
    expect(new Set(ids).size).toBe(15);
  });
});

describe('an outcome that may still change', () => {
  it('an authorization that expires at the provider: failed, authorization_expired', async () => {
    const body = newCharge({ capture: 'manual' });
    const key = randomUUID();
    const { body: payment, text } = await system.charge(body, { key }).expect(201);
    await system.simulator.expire(payment.provider_payment_id);
    await makeDue(body.external_payment_id);
    await reconcileRound(other.payments);
    expect((await system.getPayment(payment.id)).body).toMatchObject({
      status: 'failed',
      failure: { code: 'authorization_expired' },
    });
    expect((await system.charge(body, { key }).expect(201)).text).toBe(text);
  });

  it('an open action that the customer fails', async () => {
    const body = newCharge({ payment_method: 'pm_requires_action' });
    const { body: payment } = await system.charge(body).expect(201);
    await system.simulator.complete(payment.provider_payment_id, 'failed');
    await makeDue(body.external_payment_id);
    await reconcileRound(other.payments);
    expect((await system.getPayment(payment.id)).body).toMatchObject({
      status: 'failed',
      failure: { code: 'authentication_failed' },
      next_action: null,
    });
  });
});

describe('what does not fit', () => {
  it.each([
    ['less than asked', 'pm_other_amount_999', 'amount_mismatch'],
    ['another currency', 'pm_other_currency_USD', 'currency_mismatch'],
  ])('%s is never paid: an anomaly, and for operators', async (_name, payment_method, kind) => {
    const body = newCharge({ payment_method });
    const key = randomUUID();
    const answer = await system.charge(body, { key }).expect(202);
    expect(answer.body).toMatchObject({ status: 'processing', amount_captured: '0.00' });
    const rows = await system.rowsOf(body.external_payment_id);
    expect(rows.anomalies).toEqual([{ kind }]);
    expect(rows.operations).toMatchObject([{ status: 'processing', needs_review_at: expect.any(Date) }]);
    expect(rows.events).toMatchObject([{ type: 'PaymentAnomalyDetected.v1' }]);
    expect((await system.charge(body, { key }).expect(202)).body.status).toBe('processing');
  });

  it('more than asked is paid, and an anomaly', async () => {
    const body = newCharge({ payment_method: 'pm_other_amount_1001' });
    const answer = await system.charge(body).expect(201);
    expect(answer.body).toMatchObject({ status: 'succeeded', amount: '10.00', amount_captured: '10.01' });
    const kinds = (await system.rowsOf(body.external_payment_id)).anomalies.map((anomaly) => anomaly.kind).sort();
    expect(kinds).toEqual(['amount_mismatch', 'captured_too_much']);
  });
});

describe('a provider that is not configured any more', () => {
  let without: TestInstance;
  beforeAll(async () => {
    without = await system.join({ env: { PROVIDERS: 'instant', PROVIDER_TIMEOUT_MS: '500' } });
  });

  it('its operations stay unknown, are asked about less and less often, and break no job', async () => {
    const body = newCharge({ payment_method: 'pm_async_success_600000' });
    await system.charge(body).expect(202);
    await makeDue(body.external_payment_id);
    await reconcileRound(without.payments);
    const { operations } = await system.rowsOf(body.external_payment_id);
    expect(operations).toMatchObject([{ status: 'processing' }]);
    const [row] = await checksOf(body.external_payment_id);
    expect(row!.in_ms).toBeGreaterThan(30_000);
    expect(without.log.filter((line) => line.level === 'error')).toEqual([]);
  });

  it('a lease that is over is not taken again and again: its key waits open', async () => {
    const body = newCharge();
    const key = randomUUID();
    const held = system.first.holdAt('begun');
    const first = system.charge(body, { key }).then((answer) => answer);
    await held.reached;
    await system.expireLease(key);
    await recoverRound(without.payments);
    expect(await system.record(key)).toMatchObject({ state: 'open' });
    held.release();
    expect((await first).status).toBe(409);
    await makeDue(body.external_payment_id);
    await reconcileRound(other.payments);
    expect((await system.charge(body, { key }).expect(201)).body.status).toBe('succeeded');
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });
});

describe('an adapter with a defect', () => {
  it.each(['throws at once', 'rejects'])('that %s says nothing of the money: 202, and found out later', async (how) => {
    const broken = (provider: PaymentProvider): PaymentProvider => ({
      ...provider,
      charge: (...args) => {
        const sent = provider.charge(...args);
        if (how === 'rejects') return sent.then(() => Promise.reject(new TypeError('x is not a function')));
        void sent;
        throw new TypeError('x is not a function');
      },
      retrieve: () => Promise.reject(new TypeError('x is not a function')),
    });
    const instance = await system.join({ wrapProvider: broken });
    const body = newCharge();
    const key = randomUUID();
    await system.charge(body, { key, instance }).expect(202);
    await makeDue(body.external_payment_id);
    await soon(async () => expect(await system.movements(body.external_payment_id)).toHaveLength(1));
    await reconcileRound(other.payments);
    expect((await system.charge(body, { key }).expect(201)).body.status).toBe('succeeded');
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });
});
