import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { expect, inject, vi } from 'vitest';
import { askConsole } from '../../scripts/pgbouncer/pgbouncer.js';
import type { Pooler } from '../../src/config-variables.js';
import { type Database, openDatabase, openPool, type PoolOptions } from '../../src/database/database.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** What the service under test goes through (`npm run test:pgbouncer`); undefined: nothing. */
    database_pooler: PoolerAddress | undefined;
  }
}

/** A pooler on this machine, and what a service has to be told that goes through it. */
interface PoolerAddress {
  readonly port: number;
  readonly pooler: Pooler;
}

/** How a database is reached. */
export interface DatabaseAddress {
  readonly url: string;
  readonly pooler: Pooler;
  /** For a service, or a command line, in a process of its own. */
  readonly env: Readonly<Record<'DATABASE_URL' | 'DATABASE_POOLER', string>>;
  open(options: PoolOptions): Database;
  openPool(options: PoolOptions): pg.Pool;
}

/** A database as the service under test reaches it: through the pooler where the run has one. */
export interface TestDatabase extends DatabaseAddress {
  /** For what needs a session of its own: LISTEN, locks, settings. */
  readonly direct_url: string;
  /**
   * Cuts whoever is still connected.
   * @throws Error where the run has a pooler and nothing of the test went through it
   */
  drop(): Promise<void>;
}

const COPY_LIMIT = { timeout: 10_000, interval: 25 };

/**
 * A database of the test's own, migrated and empty: a copy of the run's template (about 50 ms).
 * @param through the run's pooler; null for a test that is about poolers, or about the database alone
 */
export async function createTestDatabase(through: PoolerAddress | null = runsPooler()): Promise<TestDatabase> {
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  await copyTemplate(name);
  return testDatabase(name, through);
}

/** An empty database, for tests of the migrations. */
export async function createEmptyDatabase(): Promise<TestDatabase> {
  const name = `empty_${randomUUID().replaceAll('-', '')}`;
  await asAdmin((admin) => admin.query(`CREATE DATABASE ${name}`));
  return testDatabase(name, runsPooler());
}

function testDatabase(name: string, through: PoolerAddress | null): TestDatabase {
  const direct_url = adminUrl().replace(/[^/]*$/, name);
  const address = addressOf(direct_url, through);
  return {
    ...address,
    direct_url,
    drop: async () => {
      const transactions = through && (await transactionsThrough(address.url));
      await asAdmin((admin) => admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`));
      if (transactions === 0) throw new Error(`Nothing reached ${name} through the pooler`);
    },
  };
}

/** What the services of this run go through; null: nothing. */
export function runsPooler(): PoolerAddress | null {
  return inject('database_pooler') ?? null;
}

/** For a process that a test starts: one that went past the pooler would do all that is asserted, and prove nothing. */
export function expectRunsWay({ url, pooler }: Pick<DatabaseAddress, 'url' | 'pooler'>): void {
  expect(pooler, 'what the run goes through').toBe(runsPooler()?.pooler ?? 'none');
  if (pooler !== 'none') expect(new URL(url).port, 'not the database itself').not.toBe(new URL(adminUrl()).port);
}

/** How many transactions of a database a pooler has carried so far, by its own count. */
export async function transactionsThrough(pooled_url: string): Promise<number> {
  const name = new URL(pooled_url).pathname.slice(1);
  const stats = await askConsole(pooled_url, 'SHOW STATS');
  return Number(stats.find(({ database }) => database === name)?.total_xact_count ?? 0);
}

/** Straight to a database, or through a pooler on this machine. */
export function addressOf(direct_url: string, through: PoolerAddress | null = null): DatabaseAddress {
  const pooler = through?.pooler ?? 'none';
  const url = through ? Object.assign(new URL(direct_url), { port: String(through.port) }).href : direct_url;
  return {
    url,
    pooler,
    env: { DATABASE_URL: url, DATABASE_POOLER: pooler },
    open: (options) => openDatabase(url, { pooler, ...options }),
    openPool: (options) => openPool(url, { pooler, ...options }),
  };
}

/** Address of the maintenance database, as superuser: for what a test's own database can't do. */
export function adminUrl(): string {
  return inject('database_admin_url');
}

async function copyTemplate(name: string): Promise<void> {
  const create = `CREATE DATABASE ${name} TEMPLATE ${inject('database_template')} STRATEGY FILE_COPY`;
  await vi.waitFor(async () => {
    // 55006: somebody else is copying it; over in a moment.
    await asAdmin((admin) => admin.query(create));
  }, COPY_LIMIT);
}

async function asAdmin(run: (admin: pg.Client) => Promise<unknown>): Promise<void> {
  const admin = new pg.Client({ connectionString: adminUrl() });
  await admin.connect();
  try {
    await run(admin);
  } finally {
    await admin.end();
  }
}
