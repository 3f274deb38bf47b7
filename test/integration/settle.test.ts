import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { inTransaction } from '../../src/database/transaction.js';
import { lockDossier, readDossier } from '../../src/store/payments.js';
import { answerWaiting, leaveOpen } from '../../src/store/records.js';
import { parkWaiter } from '../../src/store/operations.js';
import { reserve } from '../../src/store/reserve.js';
import { settleCharges } from '../../src/store/settle.js';
import { type Begun, beginMany, LEASE_MS, reserveItem, settleItem } from '../support/charges.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { chargeFact, FAILURE } from '../support/domain.js';
import { soon } from '../support/soon.js';

let database: TestDatabase;
let pool: pg.Pool;
beforeAll(async () => {
  database = await createTestDatabase();
  pool = database.openPool({ pool_size: 20, settings: { deadlock_timeout: '20ms' } });
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});

interface State {
  readonly record: string;
  readonly body: string | null;
  readonly http_status: number | null;
  readonly payment: string;
  readonly version: number;
  readonly operation: string;
  readonly events: number;
}

async function stateOf(begun: Begun): Promise<State> {
  const { rows } = await pool.query<State>(
    `select r.state as record, r.body, r.http_status, p.status as payment, p.version, o.status as operation,
            (select count(*) from outbox_event e where e.key = p.id::text)::int as events
     from idempotency_record r join payment p on p.id = r.payment_id join operation o on o.id = r.operation_id
     where r.key = $1`,
    [begun.lease.key],
  );
  return rows[0]!;
}

const UNTOUCHED = { record: 'in_progress', payment: 'processing', version: 1, operation: 'processing', events: 0 };

async function lockWaiters(count: number): Promise<void> {
  await soon(async () => {
    const { rows } = await pool.query(
      `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    );
    expect(rows).toHaveLength(count);
  });
}

describe('a charge that settles', () => {
  it.each([
    ['succeeded', chargeFact()],
    ['authorized', chargeFact({ status: 'authorized' })],
    ['failed', chargeFact({ status: 'failed' })],
    ['requires_action', chargeFact({ status: 'requires_action' })],
  ])('%s: payment, operation, answer and event, as they were decided', async (status, fact) => {
    const [begun] = await beginMany(pool, 1);
    const item = settleItem(begun!, { type: 'fact', fact });
    expect(await settleCharges(pool, [item])).toEqual([true]);
    const dossier = await readDossier(pool, item.payment.id);
    expect(dossier?.payment).toEqual(item.payment);
    expect(dossier?.operations).toEqual([{ ...item.operation, attempts_finished: 1 }]);
    expect(await stateOf(begun!)).toMatchObject({
      record: 'done',
      http_status: 201,
      body: item.answer.body,
      payment: status,
      events: 1,
    });
    const { rows } = await pool.query(
      `select p.history, o.attempts, e.id, e.sequence, e.type, e.data->'payment'->>'status' as told
       from payment p join operation o on o.payment_id = p.id join outbox_event e on e.key = p.id::text where p.id = $1`,
      [item.payment.id],
    );
    expect(rows).toEqual([
      {
        history: [JSON.parse(JSON.stringify(item.history))],
        attempts: [item.attempt],
        id: item.event.id,
        sequence: 2,
        type: item.event.type,
        told: status,
      },
    ]);
  });

  it('run again after a lost acknowledgement writes nothing: one event, the first answer', async () => {
    const [begun] = await beginMany(pool, 1);
    expect(await settleCharges(pool, [settleItem(begun!)])).toEqual([true]);
    const before = await stateOf(begun!);
    expect(await settleCharges(pool, [settleItem(begun!)])).toEqual([false]);
    expect(await stateOf(begun!)).toEqual(before);
  });

  it('answers every key that waits for it, each as its own record calls success', async () => {
    const [begun] = await beginMany(pool, 1);
    const waiters = [reserveItem(), reserveItem()];
    await reserve(pool, waiters, LEASE_MS);
    const { id: payment_id } = begun!.payment;
    await inTransaction(pool, async (tx) => {
      await lockDossier(tx, payment_id);
      for (const waiter of waiters) {
        await parkWaiter(tx, payment_id);
        await leaveOpen(tx, waiter, { payment_id, operation_id: begun!.operation.id, success_status: 200 });
      }
    });
    // It was decided on before they came: they would not have been seen, so it misses.
    expect(await settleCharges(pool, [settleItem(begun!)])).toEqual([false]);
    const item = settleItem({ ...begun!, payment: { ...begun!.payment, version: 3 } });
    expect(await settleCharges(pool, [item])).toEqual([true]);
    const { rows } = await pool.query(
      `select state, http_status, body from idempotency_record where operation_id = $1 order by http_status`,
      [begun!.operation.id],
    );
    const { body } = item.answer;
    expect(rows).toEqual([
      { state: 'done', http_status: 200, body },
      { state: 'done', http_status: 200, body },
      { state: 'done', http_status: 201, body },
    ]);
  });

  it.each([
    ['another token', 'update idempotency_record set lease_token = gen_random_uuid() where key = $1'],
    ['no record', 'delete from idempotency_record where key = $1'],
    [
      'another version',
      'update payment set version = 2 where id = (select payment_id from idempotency_record where key = $1)',
    ],
  ])('where it finds %s writes nothing, and the others of its batch are not held up', async (_name, statement) => {
    const [first, odd, last] = await beginMany(pool, 3);
    await pool.query(statement, [odd!.lease.key]);
    const items = [first!, odd!, last!].map((begun) => settleItem(begun));
    expect(await settleCharges(pool, items)).toEqual([true, false, true]);
    const dossier = await readDossier(pool, odd!.payment.id);
    expect(dossier?.payment.status).toBe('processing');
    expect(dossier?.operations[0]).toMatchObject({ status: 'processing', attempts_finished: 0 });
    const { rows } = await pool.query('select 1 from outbox_event where key = $1', [odd!.payment.id]);
    expect(rows).toEqual([]);
  });
});

describe('while somebody else is at it', () => {
  it('a webhook that commits first wins: no answer contradicts its payment', async () => {
    const [first, told, last] = await beginMany(pool, 3);
    const tx = await pool.connect();
    await tx.query('begin');
    await tx.query(`update payment set status = 'failed', version = version + 1 where id = $1`, [told!.payment.id]);
    const settling = settleCharges(
      pool,
      [first!, told!, last!].map((begun) => settleItem(begun)),
    );
    await lockWaiters(1);
    await tx.query('commit');
    tx.release();
    expect(await settling).toEqual([true, false, true]);
    expect(await stateOf(told!)).toMatchObject({ ...UNTOUCHED, payment: 'failed', version: 2 });
    expect(await stateOf(last!)).toMatchObject({ record: 'done', payment: 'succeeded', events: 1 });
  });

  it('a take-over that commits first wins', async () => {
    const [first, taken, last] = await beginMany(pool, 3);
    const tx = await pool.connect();
    await tx.query('begin');
    await tx.query('update idempotency_record set lease_token = gen_random_uuid() where key = $1', [taken!.lease.key]);
    const settling = settleCharges(
      pool,
      [first!, taken!, last!].map((begun) => settleItem(begun)),
    );
    await lockWaiters(1);
    await tx.query('commit');
    tx.release();
    expect(await settling).toEqual([true, false, true]);
    expect(await stateOf(taken!)).toMatchObject(UNTOUCHED);
  });

  it('settlers, take-overs and webhooks on the same charges: no torn row, no deadlock, each settled once', async () => {
    const count = 240;
    const begun = await beginMany(pool, count);
    const some = (size: number) =>
      [...new Set(Array.from({ length: size }, () => Math.floor(Math.random() * count)))].map((n) => begun[n]!);
    let settled = 0;
    let told = 0;
    const settler = async () => {
      for (let round = 0; round < 25; round += 1) {
        const results = await settleCharges(
          pool,
          some(25).map((item) => settleItem(item)),
        );
        settled += results.filter(Boolean).length;
      }
    };
    const taker = async () => {
      for (let round = 0; round < 25; round += 1) {
        const keys = some(2).map(({ lease }) => lease.key);
        await pool.query(
          `with c as (select client_id, key from idempotency_record where state = 'in_progress' and key = any($1)
                      order by client_id, key for no key update skip locked)
           update idempotency_record r set lease_token = gen_random_uuid() from c where r.client_id = c.client_id and r.key = c.key`,
          [keys],
        );
      }
    };
    const webhook = async () => {
      for (let round = 0; round < 25; round += 1) {
        const [item] = some(1);
        const failed = await inTransaction(pool, async (tx) => {
          const dossier = await lockDossier(tx, item!.payment.id);
          if (dossier?.payment.status !== 'processing') return 0;
          await tx.query(
            `update payment set status = 'failed', failure_code = $2, failure_message = $3, version = version + 1 where id = $1`,
            [item!.payment.id, FAILURE.code, FAILURE.message],
          );
          await tx.query(`update operation set status = 'failed' where id = $1`, [item!.operation.id]);
          const answer = {
            body: '{"status":"failed"}',
            http_status: null,
            expires_at: dossier.now,
            answered_at: dossier.now,
          };
          await answerWaiting(tx, item!.operation.id, answer);
          return 1;
        });
        // Not `told += await`: that reads the sum before it waits, and two of us add to it.
        told += failed;
      }
    };
    await Promise.all([settler(), settler(), settler(), settler(), taker(), taker(), webhook(), webhook()]);

    const { rows } = await pool.query<{
      state: string;
      payment: string;
      operation: string;
      told: string | null;
      events: number;
    }>(
      `select r.state, p.status as payment, o.status as operation, r.body::json->>'status' as told,
              (select count(*) from outbox_event e where e.key = p.id::text)::int as events
       from idempotency_record r join payment p on p.id = r.payment_id join operation o on o.id = r.operation_id
       where r.key = any($1)`,
      [begun.map(({ lease }) => lease.key)],
    );
    expect(rows).toHaveLength(count);
    for (const row of rows) {
      const expected = row.state === 'done' ? row.payment : null;
      expect(row.told).toBe(expected);
      expect(row.operation).toBe(row.payment);
      expect(row.events).toBe(row.payment === 'succeeded' ? 1 : 0);
    }
    expect(rows.filter(({ payment }) => payment === 'succeeded')).toHaveLength(settled);
    expect(rows.filter(({ payment }) => payment === 'failed')).toHaveLength(told);
    expect(settled).toBeGreaterThan(count / 2);
  });
});
