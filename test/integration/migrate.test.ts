import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type pg from 'pg';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { migrate, MigrationError, pendingMigrations } from '../../src/database/migrate.js';
import { addressOf, createEmptyDatabase, type TestDatabase } from '../support/database.js';

const OURS = fileURLToPath(new URL('../../prisma/migrations', import.meta.url));

let database: TestDatabase;
let pool: pg.Pool;
let directory: string;

beforeEach(async () => {
  database = await createEmptyDatabase();
  pool = database.openPool({ pool_size: 10 });
  directory = mkdtempSync(join(tmpdir(), 'oncepay-migrations-'));
});
afterEach(async () => {
  await pool.end();
  await database.drop();
  rmSync(directory, { recursive: true });
});

function write(name: string, sql: string): void {
  mkdirSync(join(directory, name), { recursive: true });
  writeFileSync(join(directory, name, 'migration.sql'), sql);
}

async function recorded(): Promise<Record<string, unknown>[]> {
  const { rows } = await pool.query<Record<string, unknown>>('SELECT * FROM _prisma_migrations ORDER BY started_at');
  return rows;
}

test('our own migrations apply, and are recorded as Prisma records them', async () => {
  await migrate(pool);
  expect(await pendingMigrations(pool)).toEqual([]);
  const names = readdirSync(OURS).sort();
  const rows = await recorded();
  expect(rows.map((row) => row.migration_name)).toEqual(names);
  for (const row of rows) {
    const text = readFileSync(join(OURS, String(row.migration_name), 'migration.sql'));
    expect(row).toMatchObject({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      checksum: createHash('sha256').update(text).digest('hex'),
      finished_at: expect.any(Date),
      logs: null,
      rolled_back_at: null,
      applied_steps_count: 1,
    });
  }
  const { rows: columns } = await pool.query<{ column: string }>(
    `SELECT attname || ' ' || format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' not null' ELSE '' END AS column
     FROM pg_attribute WHERE attrelid = '_prisma_migrations'::regclass AND attnum > 0 ORDER BY attnum`,
  );
  expect(columns.map(({ column }) => column)).toEqual([
    'id character varying(36) not null',
    'checksum character varying(64) not null',
    'finished_at timestamp with time zone',
    'migration_name character varying(255) not null',
    'logs text',
    'rolled_back_at timestamp with time zone',
    'started_at timestamp with time zone not null',
    'applied_steps_count integer not null',
  ]);
});

test('several instances that start at once apply each migration once', async () => {
  write('1_first', 'CREATE TABLE one (); SELECT pg_sleep(0.2)');
  write('2_second', 'CREATE TABLE two ()');
  await Promise.all(Array.from({ length: 6 }, () => migrate(pool, directory)));
  expect((await recorded()).map((row) => row.migration_name)).toEqual(['1_first', '2_second']);
});

test('a later start applies only what is new, in the order of the names', async () => {
  write('1_first', 'CREATE TABLE one (first int)');
  await migrate(pool, directory);
  write('3_third', 'ALTER TABLE two ADD COLUMN third int');
  write('2_second', 'CREATE TABLE two ()');
  expect(await pendingMigrations(pool, directory)).toEqual(['2_second', '3_third']);
  await migrate(pool, directory);
  expect((await recorded()).map((row) => row.migration_name)).toEqual(['1_first', '2_second', '3_third']);
});

test('one that fails leaves nothing behind, of those before it neither, and is named', async () => {
  write('1_first', 'CREATE TABLE one ()');
  write('2_second', 'CREATE TABLE two (); SELECT * FROM nowhere');
  const failure = migrate(pool, directory);
  await expect(failure).rejects.toThrow(MigrationError);
  await expect(failure).rejects.toThrow(/2_second failed, nothing was changed: relation "nowhere" does not exist/);
  const { rows } = await pool.query(`SELECT FROM pg_tables WHERE schemaname = 'public'`);
  expect(rows).toEqual([]);
  expect(pool.totalCount - pool.idleCount, 'no connection is left in a transaction').toBe(0);
});

test('a database that is ahead of the code is refused, and left alone', async () => {
  write('1_first', 'CREATE TABLE one ()');
  write('2_second', 'CREATE TABLE two ()');
  await migrate(pool, directory);
  rmSync(join(directory, '2_second'), { recursive: true });
  write('3_third', 'CREATE TABLE three ()');
  await expect(migrate(pool, directory)).rejects.toThrow(/ahead of this code.*2_second/);
  expect(await recorded()).toHaveLength(2);
});

test('a migration whose text has changed since is refused', async () => {
  write('1_first', 'CREATE TABLE one ()');
  await migrate(pool, directory);
  write('1_first', 'CREATE TABLE one (); -- better');
  await expect(migrate(pool, directory)).rejects.toThrow(/1_first was applied from another text/);
});

test('a failed migration on record is refused; one that was rolled back is applied again', async () => {
  write('1_first', 'CREATE TABLE one ()');
  await migrate(pool, directory);
  await pool.query('DROP TABLE one; UPDATE _prisma_migrations SET finished_at = NULL');
  await expect(migrate(pool, directory)).rejects.toThrow(/1_first is recorded as failed/);
  await pool.query('UPDATE _prisma_migrations SET rolled_back_at = now()');
  await migrate(pool, directory);
  expect(await recorded()).toHaveLength(2);
});

test('a migration may take longer than any other statement', async () => {
  write('1_slow', 'SELECT pg_sleep(0.5)');
  const hasty = addressOf(database.direct_url).openPool({ pool_size: 2 });
  hasty.options.statement_timeout = 300;
  hasty.options.query_timeout = 300;
  await migrate(hasty, directory);
  await hasty.end();
  expect(await pendingMigrations(pool, directory)).toEqual([]);
});

test('one that waits for a table in use gives up rather than hold up everybody behind it', async () => {
  await pool.query('CREATE TABLE busy ()');
  write('1_alter', 'ALTER TABLE busy ADD COLUMN more int');
  const holder = await pool.connect();
  await holder.query('BEGIN; LOCK TABLE busy IN ACCESS SHARE MODE');
  await expect(migrate(pool, directory)).rejects.toThrow(/1_alter failed, nothing was changed: .*lock timeout/);
  await holder.query('ROLLBACK');
  holder.release();
  await migrate(pool, directory);
});

test('a database of another encoding is refused', async () => {
  await pool.query(`CREATE DATABASE latin_${process.pid} ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'`);
  const latin = addressOf(database.direct_url.replace(/[^/]*$/, `latin_${process.pid}`)).openPool({ pool_size: 1 });
  await expect(migrate(latin)).rejects.toThrow(/encoding must be UTF8, it is LATIN1/);
  await latin.end();
  await vi.waitFor(() => pool.query(`DROP DATABASE latin_${process.pid} WITH (FORCE)`));
});

test('they are found wherever the service is started from', async () => {
  cpSync(OURS, directory, { recursive: true });
  expect(await pendingMigrations(pool)).toEqual(await pendingMigrations(pool, directory));
});
