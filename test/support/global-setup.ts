import { randomUUID } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { openPool } from '../../src/database/database.js';
import { startEmbeddedPostgres } from '../../src/database/embedded/server.js';
import { migrate } from '../../src/database/migrate.js';
import { isRunning } from '../../src/database/processes.js';
import { readPostmaster, stopServer } from '../../src/database/embedded/postmaster.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** Address of the maintenance database of the run's PostgreSQL, as its superuser. */
    database_admin_url: string;
    /** The name of a migrated database that nobody is connected to. */
    database_template: string;
  }
}

const FOLDER = join(tmpdir(), 'oncepay-test');
const TEMPLATE = 'oncepay_template';

/**
 * One PostgreSQL for the whole run, and in it one migrated database that every test's own is a copy of.
 * It does not sync to disk (`fsync` off): that gives up what a crash of the *machine* would lose, and nothing of what
 * our tests kill. Commits still reach the log before they are acknowledged.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  makeFolder();
  await removeLeftovers();
  const data_dir = mkdtempSync(join(FOLDER, `${process.pid}-`));
  chmodSync(data_dir, 0o711);
  const server = await startEmbeddedPostgres({
    data_dir,
    settings: { fsync: 'off', full_page_writes: 'off', max_connections: '300', shared_buffers: '128MB' },
  });
  const admin_url = server.url.replace(/[^/]*$/, 'postgres');
  await makeTemplate(admin_url);
  project.provide('database_admin_url', admin_url);
  project.provide('database_template', TEMPLATE);
  return async () => {
    await server.stop();
    rmSync(data_dir, { recursive: true, force: true });
  };
}

function makeFolder(): void {
  mkdirSync(FOLDER, { recursive: true });
  // Several users may run tests on one machine; the database's user has to pass through.
  try {
    chmodSync(FOLDER, 0o1777);
  } catch {
    // Another user's folder, and open already.
  }
}

/** What runs that were killed left behind: their database goes on without them. */
async function removeLeftovers(): Promise<void> {
  for (const name of readdirSync(FOLDER)) {
    const pid = Number(name.split('-')[0]);
    if (!Number.isInteger(pid) || isRunning(pid)) continue;
    const server = readPostmaster(join(FOLDER, name, 'postgres'));
    try {
      if (server !== undefined && isRunning(server.pid)) await stopServer(server.pid, 5_000);
      rmSync(join(FOLDER, name), { recursive: true, force: true });
    } catch {
      // Another user's, or another run is at it.
    }
  }
}

async function makeTemplate(admin_url: string): Promise<void> {
  const unfinished = `template_${randomUUID().replaceAll('-', '')}`;
  const admin = new pg.Client({ connectionString: admin_url });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${unfinished}`);
  const pool = openPool(admin_url.replace(/[^/]*$/, unfinished), { pool_size: 1 });
  await migrate(pool);
  await pool.end();
  await admin.query(`ALTER DATABASE ${unfinished} RENAME TO ${TEMPLATE}`);
  // A template that somebody is connected to can't be copied.
  await admin.query(`ALTER DATABASE ${TEMPLATE} ALLOW_CONNECTIONS false`);
  await admin.end();
}
