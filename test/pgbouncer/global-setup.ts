import type { TestProject } from 'vitest/node';
import { startPgBouncer } from '../../scripts/pgbouncer/pgbouncer.js';
import type { Pooler } from '../../src/config-variables.js';
import { SERVICE_SETTINGS } from '../../src/database/session.js';

/** Fewer than the connections of a test, so that they share; more than the transactions that a test holds open at once. */
const SESSIONS = 8;
/** What tests of deadlocks ask for when they open a pool, which a pooled session can't be told there. */
const SETTINGS = { ...SERVICE_SETTINGS, deadlock_timeout: '20' };

/**
 * One PgBouncer for the whole run, before the run's PostgreSQL: the service under test goes through it, and no two
 * statements in a row are likely to see the same session. TEST_POOLER=transaction-prepared tests a PgBouncer that keeps
 * prepared statements.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { database_admin_url } = project.getProvidedContext();
  const bouncer = await startPgBouncer({
    server_url: database_admin_url,
    pool_size: SESSIONS,
    settings: SETTINGS,
    ini: { server_round_robin: '1' },
  });
  const pooler: Pooler = process.env.TEST_POOLER === 'transaction-prepared' ? 'transaction-prepared' : 'transaction';
  project.provide('database_pooler', { port: bouncer.port, pooler });
  console.log(`${bouncer.version}, DATABASE_POOLER=${pooler}`);
  return async () => {
    const carried = await bouncer.console('SHOW STATS');
    await bouncer.stop();
    const transactions = carried.reduce((sum, { total_xact_count }) => sum + Number(total_xact_count), 0);
    console.log(`PgBouncer carried ${transactions} transactions of ${carried.length} databases`);
  };
}
