import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Pooler } from '../../src/config-variables.js';
import { openDatabase, openPool, type PoolOptions } from '../../src/database/database.js';
import { checkSession, INDEX_PLANS } from '../../src/database/session.js';
import { adminUrl, createTestDatabase, type TestDatabase } from '../support/database.js';

/** What the service opens. */
const SERVICE: PoolOptions = { pool_size: 2, settings: INDEX_PLANS };

let database: TestDatabase;
let url: string;
const clean_up: (() => Promise<unknown>)[] = [];

// Straight to PostgreSQL, whatever else the run goes through, as a role that may do no more than it has to.
beforeEach(async () => {
  database = await createTestDatabase(null);
  clean_up.push(() => database.drop());
  const role = `role-${randomUUID()}`;
  const admin = openPool(adminUrl(), { pool_size: 1 });
  await admin.query(`CREATE ROLE "${role}" LOGIN PASSWORD 'secret'`);
  clean_up.push(async () => {
    await admin.query(`DROP OWNED BY "${role}"; DROP ROLE "${role}"`);
    await admin.end();
  });
  url = Object.assign(new URL(database.direct_url), { username: role, password: 'secret' }).href;
});
afterEach(async () => {
  for (let clean = clean_up.pop(); clean !== undefined; clean = clean_up.pop()) await clean();
});

async function check(address: string, pooler: Pooler, options = SERVICE): Promise<string> {
  const pool = openPool(address, { ...options, pooler });
  try {
    return await checkSession(pool, pooler).then(
      () => 'fine',
      (error: unknown) => String(error),
    );
  } finally {
    await pool.end();
  }
}

async function run(sql: string): Promise<void> {
  const pool = openPool(url, { pool_size: 1 });
  await pool.query(sql);
  await pool.end();
}

const remedyIn = (refusal: string): string => /Run: (.*;)/.exec(refusal)?.[1] ?? '';

test('straight to PostgreSQL every connection is told what it needs', async () => {
  expect(await check(url, 'none')).toBe('fine');
});

test('an address with options of its own takes ours away: refused, with the statements that put it right', async () => {
  const own_options = `${url}?options=${encodeURIComponent('-c work_mem=8MB')}`;
  const refusal = await check(own_options, 'none');
  expect(refusal).toMatch(/^SessionError: .*enable_seqscan is on and has to be off/);
  expect(refusal).not.toContain('lock_timeout');
  // The role's own right is enough.
  await run(remedyIn(refusal));
  expect(await check(own_options, 'none')).toBe('fine');
});

test('through a pooler nobody is told anything: refused until the role has it all', async () => {
  const refusal = await check(url, 'transaction');
  expect(refusal).toContain('lock_timeout is 0 and has to be 1 to 3000 (ms)');
  expect(refusal).toContain('RECONNECT');
  await run(remedyIn(refusal));
  expect(await check(url, 'transaction')).toBe('fine');
  expect(await check(url, 'transaction-prepared')).toBe('fine');
});

test('a limit may be tighter than ours, not wider', async () => {
  await run(remedyIn(await check(url, 'transaction')));
  const set = (limit: string) =>
    run(`ALTER ROLE CURRENT_USER IN DATABASE ${databaseName()} SET lock_timeout = ${limit}`);
  await set("'1s'");
  expect(await check(url, 'transaction')).toBe('fine');
  for (const wrong of ['0', "'3001ms'"]) {
    await set(wrong);
    expect(await check(url, 'transaction')).toMatch(/lock_timeout is (0|3001) and has to be/);
  }
});

const databaseName = (): string => new URL(url).pathname.slice(1);

test.each<[Pooler, number]>([
  ['none', 2],
  ['transaction-prepared', 2],
  ['transaction', 0],
])('through %s, of a statement of ours and one of Prisma %i keep their names', async (pooler, kept) => {
  const opened = openDatabase(database.direct_url, { pool_size: 1, pooler });
  const { pool, prisma, listen_url } = opened;
  const rows = (result: pg.QueryResult<{ name: string }>) => result.rows.map(({ name }) => name);
  expect((await pool.query({ name: 'ours', text: 'SELECT $1::int AS one', values: [1] })).rows).toEqual([{ one: 1 }]);
  expect(await prisma.apiClient.count()).toBe(0);
  expect(rows(await pool.query('SELECT name FROM pg_prepared_statements'))).toHaveLength(kept);
  expect(listen_url).toBe(pooler === 'none' ? database.direct_url : null);
  await opened.close();
});
