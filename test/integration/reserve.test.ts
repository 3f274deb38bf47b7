import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { endLease, leaveOpen, releaseKey, storeAnswer } from '../../src/store/records.js';
import { reserve, type ReserveItem, type ReserveResult } from '../../src/store/reserve.js';
import { LEASE_MS, reserveItem } from '../support/charges.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { newHash } from '../support/domain.js';

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

const one = async (item: ReserveItem): Promise<ReserveResult> => (await reserve(pool, [item], LEASE_MS))[0]!;
const again = (item: ReserveItem, fields: Partial<ReserveItem> = {}) => reserveItem({ ...item, ...ids(), ...fields });
const ids = () => {
  const { token, payment_id, operation_id } = reserveItem();
  return { token, payment_id, operation_id };
};

async function finish(item: ReserveItem, expires_in_ms = 3_600_000): Promise<void> {
  const expires_at = new Date(Date.now() + expires_in_ms);
  const stored = await storeAnswer(pool, item, {
    http_status: 201,
    body: '{"a": 1}',
    expires_at,
    payment_id: null,
    operation_id: null,
  });
  expect(stored).toBe(true);
}

function shuffled<Item>(list: readonly Item[]): Item[] {
  return list
    .map((item) => ({ item, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}

describe('a key', () => {
  it('that is new is reserved, with its ids and a lease', async () => {
    const item = reserveItem();
    expect(await one(item)).toEqual({ type: 'reserved', lease: item, taken_over: false });
    const { rows } = await pool.query('select * from idempotency_record where key = $1', [item.key]);
    expect(rows).toMatchObject([{ state: 'in_progress', lease_token: item.token, attempts_started: 1 }]);
  });

  it('in progress tells what is left of the lease; of another command or kind it is reused', async () => {
    const item = reserveItem();
    await one(item);
    const other = await one(again(item));
    expect(other).toMatchObject({ type: 'in_progress', operation_id: item.operation_id });
    if (other.type === 'in_progress') {
      expect(other.lease_left_ms).toBeGreaterThan(LEASE_MS - 10_000);
      expect(other.lease_left_ms).toBeLessThanOrEqual(LEASE_MS);
    }
    expect(await one(again(item, { command_hash: newHash() }))).toEqual({ type: 'reused', expires_at: null });
    expect((await one(again(item, { kind: 'refund' }))).type).toBe('reused');
    expect((await one(again(item, { client_id: 'other' }))).type).toBe('reserved');
  });

  it('whose lease is over is taken over with what it has begun, by the same command only', async () => {
    const item = reserveItem();
    await one(item);
    await endLease(pool, item);
    expect((await one(again(item, { command_hash: newHash() }))).type).toBe('reused');
    const taker = again(item);
    const { payment_id, operation_id } = item;
    expect(await one(taker)).toMatchObject({
      type: 'reserved',
      taken_over: true,
      lease: { token: taker.token, payment_id, operation_id },
    });
    expect(await releaseKey(pool, item)).toBe(false);
    expect((await one(again(item))).type).toBe('in_progress');
  });

  it('that is open or done says so', async () => {
    const item = reserveItem();
    await one(item);
    const { payment_id, operation_id } = item;
    await leaveOpen(pool, item, { payment_id, operation_id, success_status: null });
    expect(await one(again(item))).toEqual({ type: 'open', payment_id, operation_id, kind: 'charge' });

    const done = reserveItem();
    await one(done);
    await finish(done);
    expect(await one(again(done))).toMatchObject({
      type: 'done',
      http_status: 201,
      body: '{"a": 1}',
      payment_id: done.payment_id,
      operation_id: done.operation_id,
    });
    expect((await one(again(done, { command_hash: newHash() }))).type).toBe('reused');
  });

  it('past its retention is new, for any command; nothing of before is left on it', async () => {
    const item = reserveItem();
    await one(item);
    await finish(item, -1_000);
    const next = again(item, { command_hash: newHash(), kind: 'capture', success_status: 200 });
    expect(await one(next)).toEqual({
      type: 'reserved',
      taken_over: false,
      lease: expect.objectContaining(ids_of(next)) as unknown,
    });
    const { rows } = await pool.query('select * from idempotency_record where key = $1', [item.key]);
    expect(rows).toMatchObject([
      {
        state: 'in_progress',
        kind: 'capture',
        command_hash: next.command_hash,
        payment_id: next.payment_id,
        operation_id: next.operation_id,
        success_status: 200,
        http_status: null,
        body: null,
        expires_at: null,
        answered_at: null,
        attempts_started: 1,
        attempts_finished: 0,
      },
    ]);
  });

  it('that was released is new', async () => {
    const item = reserveItem();
    await one(item);
    expect(await releaseKey(pool, item)).toBe(true);
    expect((await one(again(item))).type).toBe('reserved');
  });
});

function ids_of({ token, payment_id, operation_id }: ReserveItem) {
  return { token, payment_id, operation_id };
}

describe('a batch', () => {
  it('answers in its own order, whatever the states of its keys', async () => {
    const [fresh, held, done, over] = [reserveItem(), reserveItem(), reserveItem(), reserveItem()];
    await reserve(pool, [held, done, over], LEASE_MS);
    await finish(done);
    await endLease(pool, over);
    const results = await reserve(pool, [again(done), fresh, again(over), again(held)], LEASE_MS);
    expect(results.map(({ type }) => type)).toEqual(['done', 'reserved', 'reserved', 'in_progress']);
  });

  it('with one key twice reserves it for one of them', async () => {
    const x = reserveItem();
    const results = await reserve(pool, [x, again(x), reserveItem()], LEASE_MS);
    expect(results.map(({ type }) => type).sort()).toEqual(['in_progress', 'reserved', 'reserved']);
  });

  it('run again after a lost acknowledgement finds its own reservations', async () => {
    const items = [reserveItem(), reserveItem()];
    const over = reserveItem();
    await one(over);
    await endLease(pool, over);
    const taker = again(over);
    const first = await reserve(pool, [...items, taker], LEASE_MS);
    const second = await reserve(pool, [...items, taker], LEASE_MS);
    expect(second.map(({ type }) => type)).toEqual(['reserved', 'reserved', 'reserved']);
    expect(second.map((result) => result.type === 'reserved' && ids_of(result.lease as ReserveItem))).toEqual(
      first.map((result) => result.type === 'reserved' && ids_of(result.lease as ReserveItem)),
    );
  });
});

describe('many sessions at once', () => {
  it('each new key is reserved by one; the others are told, and nobody is left without an answer', async () => {
    const keys = Array.from({ length: 60 }, () => `race-${randomUUID()}`);
    const results = await Promise.all(
      Array.from({ length: 16 }, async () => {
        const mine: ReserveResult[] = [];
        // Batches that overlap, each in an order of its own.
        const order = shuffled(keys);
        for (let n = 0; n < order.length; n += 15) {
          const batch = order.slice(n, n + 15).map((key) => reserveItem({ key }));
          mine.push(...(await reserve(pool, batch, LEASE_MS)));
        }
        return mine;
      }),
    );
    const all = results.flat();
    expect(all).toHaveLength(16 * 60);
    const winners = all.flatMap((result) => (result.type === 'reserved' ? [result.lease.key] : []));
    expect(winners.sort()).toEqual([...keys].sort());
    expect(new Set(all.map(({ type }) => type))).toEqual(new Set(['reserved', 'in_progress']));
  });

  it.each([
    ['a lease that is over is taken over once', (item: ReserveItem) => endLease(pool, item), true],
    ['a record past its retention is renewed once', (item: ReserveItem) => finish(item, -1_000), false],
  ])('%s', async (_name, prepare, taken_over) => {
    const items = Array.from({ length: 60 }, () => reserveItem());
    await reserve(pool, items, LEASE_MS);
    for (const item of items) await prepare(item);
    const results = await Promise.all(
      Array.from({ length: 12 }, async () => {
        const mine: ReserveResult[] = [];
        for (let round = 0; round < 3; round += 1) {
          const batch = shuffled(items).slice(0, 30);
          mine.push(
            ...(await reserve(
              pool,
              batch.map((item) => again(item)),
              LEASE_MS,
            )),
          );
        }
        return mine;
      }),
    );
    const won = results.flat().flatMap((result) => (result.type === 'reserved' ? [result] : []));
    expect(new Set(won.map(({ lease }) => lease.key)).size).toBe(won.length);
    expect(won.length).toBeGreaterThan(50);
    expect(won.every((result) => result.taken_over === taken_over)).toBe(true);
  });

  it('keys that are released while others look at them are reserved or in progress, never lost', async () => {
    const keys = Array.from({ length: 8 }, () => `churn-${randomUUID()}`);
    let held = 0;
    await Promise.all(
      Array.from({ length: 10 }, async () => {
        for (let round = 0; round < 25; round += 1) {
          const batch = shuffled(keys)
            .slice(0, 4)
            .map((key) => reserveItem({ key }));
          for (const result of await reserve(pool, batch, LEASE_MS)) {
            expect(['reserved', 'in_progress']).toContain(result.type);
            if (result.type !== 'reserved') continue;
            held += 1;
            expect(await releaseKey(pool, result.lease)).toBe(true);
          }
        }
      }),
    );
    expect(held).toBeGreaterThan(100);
  });
});
