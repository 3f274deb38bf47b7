import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { inject, vi } from 'vitest';

export interface TestDatabase {
  readonly url: string;
  /** Cuts whoever is still connected. */
  drop(): Promise<void>;
}

const COPY_LIMIT = { timeout: 10_000, interval: 25 };

/** A database of the test's own, migrated and empty: a copy of the run's template (about 50 ms). */
export async function createTestDatabase(): Promise<TestDatabase> {
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  await copyTemplate(name);
  return {
    url: adminUrl().replace(/[^/]*$/, name),
    drop: () => asAdmin((admin) => admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)),
  };
}

/** An empty database, for tests of the migrations. */
export async function createEmptyDatabase(): Promise<TestDatabase> {
  const name = `empty_${randomUUID().replaceAll('-', '')}`;
  await asAdmin((admin) => admin.query(`CREATE DATABASE ${name}`));
  return {
    url: adminUrl().replace(/[^/]*$/, name),
    drop: () => asAdmin((admin) => admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)),
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
