import type pg from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { inTransaction, sqlState } from '../../src/database/transaction.js';
import { addressOf, createEmptyDatabase, type TestDatabase } from '../support/database.js';

let database: TestDatabase;
let pool: pg.Pool;
let broken: Error[] = [];

beforeAll(async () => {
  database = await createEmptyDatabase();
  pool = database.openPool({ pool_size: 4, onError: (error) => broken.push(error) });
  await pool.query('CREATE TABLE counter (id int PRIMARY KEY, value int); INSERT INTO counter VALUES (1, 0), (2, 0)');
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});

async function value(id: number): Promise<unknown> {
  const { rows } = await pool.query<{ value: number }>('SELECT value FROM counter WHERE id = $1', [id]);
  return rows[0]?.value;
}

async function openTransactions(): Promise<number> {
  const { rows } = await pool.query<{ open: bigint }>(
    `SELECT count(*) AS open FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`,
  );
  return Number(rows[0]?.open);
}

test('commits what was done, and hands out its result', async () => {
  const result = await inTransaction(pool, async (tx) => {
    await tx.query('UPDATE counter SET value = 1 WHERE id = 1');
    return 'done';
  });
  expect(result).toBe('done');
  expect(await value(1)).toBe(1);
});

test('rolls back when anything throws, and leaves no connection in a transaction', async () => {
  const before = await value(1);
  const failure = new Error('no');
  await expect(
    inTransaction(pool, async (tx) => {
      await tx.query('UPDATE counter SET value = 99 WHERE id = 1');
      throw failure;
    }),
  ).rejects.toBe(failure);
  await expect(inTransaction(pool, (tx) => tx.query('SELECT 1 / 0'))).rejects.toMatchObject({ code: '22012' });
  expect(await value(1)).toBe(before);
  expect(await openTransactions()).toBe(0);
});

test('a swallowed error is not taken for a commit', async () => {
  const before = await value(1);
  const run = inTransaction(pool, async (tx) => {
    await tx.query('UPDATE counter SET value = 99 WHERE id = 1');
    await tx.query('SELECT 1 / 0').catch(() => undefined);
  });
  await expect(run).rejects.toThrow(/rolled back/);
  expect(await value(1)).toBe(before);
});

test('a connection on which a statement failed is not used again; one whose work was only given up is', async () => {
  const single = database.openPool({ pool_size: 1 });
  const connections = new Set<unknown>();
  single.on('acquire', (client) => connections.add(client));
  await expect(inTransaction(single, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  await single.query('SELECT 1');
  expect(connections.size).toBe(1);
  await expect(inTransaction(single, (tx) => tx.query('SELECT 1 / 0'))).rejects.toMatchObject({ code: '22012' });
  await single.query('SELECT 1');
  expect(connections.size).toBe(2);
  await single.end();
});

test('a serialization failure is done again from the start', async () => {
  let runs = 0;
  await inTransaction(pool, async (tx) => {
    runs += 1;
    await tx.query('UPDATE counter SET value = value + 1 WHERE id = 2');
    if (runs === 1) await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$`);
  });
  expect(runs).toBe(2);
  expect(await value(2)).toBe(1);
});

test('a real deadlock ends with both done', async () => {
  await pool.query('UPDATE counter SET value = 0');
  let arrived = 0;
  const both = [
    [1, 2],
    [2, 1],
  ].map(([first, second]) =>
    inTransaction(pool, async (tx) => {
      await tx.query('UPDATE counter SET value = value + 1 WHERE id = $1', [first]);
      arrived += 1;
      await vi.waitUntil(() => arrived >= 2);
      await tx.query('UPDATE counter SET value = value + 1 WHERE id = $1', [second]);
    }),
  );
  await Promise.all(both);
  expect([await value(1), await value(2)]).toEqual([2, 2]);
});

test('one that fails for ever is given up', async () => {
  let runs = 0;
  const run = inTransaction(pool, async (tx) => {
    runs += 1;
    await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40P01'; END $$`);
  });
  await expect(run).rejects.toSatisfy((error) => sqlState(error) === '40P01');
  expect(runs).toBe(5);
});

test('a connection that is cut in the middle fails that transaction only', async () => {
  broken = [];
  const run = inTransaction(pool, async (tx) => {
    const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    await pool.query('SELECT pg_terminate_backend($1)', [rows[0]?.pid]);
    await vi.waitUntil(async () => {
      const { rowCount } = await pool.query('SELECT FROM pg_stat_activity WHERE pid = $1', [rows[0]?.pid]);
      return rowCount === 0;
    });
    await tx.query('SELECT 1');
  });
  await expect(run).rejects.toThrow();
  expect(await value(1)).toBe(2);
});

test('an idle connection that is cut is reported, and replaced', async () => {
  // Its own, also where a pooler stands in between: that has connections of its own to cut.
  const direct = addressOf(database.direct_url).openPool({ pool_size: 4, onError: (error) => broken.push(error) });
  broken = [];
  await Promise.all([1, 2, 3, 4].map(() => direct.query('SELECT pg_sleep(0.02)')));
  await direct.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
  );
  await vi.waitUntil(() => broken.length >= 3);
  expect((await direct.query('SELECT 1')).rowCount).toBe(1);
  await direct.end();
});

test('limits hold at the server, for every connection', async () => {
  const { rows } = await pool.query(
    `SELECT current_setting('lock_timeout') AS lock, current_setting('statement_timeout') AS statement,
            current_setting('idle_in_transaction_session_timeout') AS idle, current_setting('application_name') AS name`,
  );
  expect(rows).toEqual([{ lock: '3s', statement: '10s', idle: '15s', name: 'oncepay' }]);
});
