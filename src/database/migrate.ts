import { createHash, randomUUID } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type pg from 'pg';
import { DATABASE_LIMITS } from './limits.js';
import { inTransaction } from './transaction.js';

/** Same place from src/database and from dist/database. */
const MIGRATIONS_DIRECTORY = fileURLToPath(new URL('../../prisma/migrations', import.meta.url));
/** The lock that Prisma's own `migrate deploy` takes, so that neither runs beside the other. */
const PRISMA_MIGRATE_LOCK = 72707369;
const SERVER_VERSION_MIN = 150000;
/** A migration may run as long as it needs: the largest delay a timer can hold. */
const NO_ANSWER_LIMIT_MS = 2 ** 31 - 1;

/** The database can't be brought to what this code needs; says why and what to do. */
export class MigrationError extends Error {
  override readonly name = 'MigrationError';
}

interface Migration {
  readonly name: string;
  readonly sql: string;
  readonly checksum: string;
}

interface AppliedRow {
  readonly migration_name: string;
  readonly checksum: string;
  readonly finished_at: Date | null;
}

/**
 * Applies what is missing of `<directory>/<name>/migration.sql`, in the order of the names, all in one transaction:
 * either the database is where the code is afterwards, or nothing has changed. Several instances may start at once.
 * What was applied is recorded as Prisma does, so that `prisma migrate status` agrees.
 * @throws MigrationError when the database is ahead of the code, was migrated by other texts, or holds a failed migration.
 */
export async function migrate(pool: pg.Pool, directory = MIGRATIONS_DIRECTORY): Promise<void> {
  const migrations = await readMigrations(directory);
  await checkServer(pool);
  // Without the lock first: the usual start finds nothing to do and needs no right to change tables.
  if ((await missing(pool, migrations)).length === 0) return;
  await inTransaction(pool, async (tx) => {
    // Transaction-scoped, so that it also works behind PgBouncer and ends with the connection.
    await tx.query(`SET LOCAL lock_timeout = ${DATABASE_LIMITS.migration_lock_ms}`);
    await tx.query(`SET LOCAL statement_timeout = 0`);
    await tx.query(unlimited(`SELECT pg_advisory_xact_lock(${PRISMA_MIGRATE_LOCK})`));
    // Tables in use must not be queued up for behind a migration that waits for its own lock.
    await tx.query(`SET LOCAL lock_timeout = ${DATABASE_LIMITS.lock_ms}`);
    await tx.query(CREATE_RECORD);
    for (const migration of await missing(tx, migrations)) await apply(tx, migration);
  });
}

/** The names of the migrations that this code has and the database has not. Reads only; for readiness. */
export async function pendingMigrations(pool: pg.Pool, directory = MIGRATIONS_DIRECTORY): Promise<string[]> {
  const migrations = await readMigrations(directory);
  const applied = new Set((await readApplied(pool)).map((row) => row.migration_name));
  return migrations.map((migration) => migration.name).filter((name) => !applied.has(name));
}

async function readMigrations(directory: string): Promise<Migration[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  const names = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  return Promise.all(
    names.sort().map(async (name) => {
      const sql = await readFile(join(directory, name, 'migration.sql'), 'utf8');
      return { name, sql, checksum: createHash('sha256').update(sql).digest('hex') };
    }),
  );
}

async function checkServer(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ version: number; version_text: string; encoding: string }>(
    `SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS version_text,
            current_setting('server_encoding') AS encoding`,
  );
  const [server] = rows;
  if (server === undefined || server.version < SERVER_VERSION_MIN) {
    throw new MigrationError(`PostgreSQL 15 or later is needed, this one is ${server?.version_text ?? 'unknown'}`);
  }
  if (server.encoding !== 'UTF8') {
    throw new MigrationError(`The database's encoding must be UTF8, it is ${server.encoding}`);
  }
}

type Queryable = Pick<pg.Pool, 'query'>;

async function readApplied(connection: Queryable): Promise<AppliedRow[]> {
  const { rows: found } = await connection.query<{ there: boolean }>(
    `SELECT to_regclass('_prisma_migrations') IS NOT NULL AS there`,
  );
  if (found[0]?.there !== true) return [];
  const { rows } = await connection.query<AppliedRow>(
    'SELECT migration_name, checksum, finished_at FROM _prisma_migrations WHERE rolled_back_at IS NULL',
  );
  return rows;
}

/** Refuses a database that did not come from these migrations. @returns what is not applied yet, in order. */
async function missing(connection: Queryable, migrations: readonly Migration[]): Promise<Migration[]> {
  const applied = await readApplied(connection);
  const known = new Map(migrations.map((migration) => [migration.name, migration]));
  for (const row of applied) {
    const migration = known.get(row.migration_name);
    if (migration === undefined) {
      throw new MigrationError(
        `The database is ahead of this code: it has the migration ${row.migration_name}, which this version does not ` +
          'know. Start the version that made it, or a later one',
      );
    }
    if (row.finished_at === null) {
      throw new MigrationError(
        `The migration ${row.migration_name} is recorded as failed. Put the database in order, then record it with ` +
          '`prisma migrate resolve`',
      );
    }
    if (row.checksum !== migration.checksum) {
      throw new MigrationError(
        `The migration ${row.migration_name} was applied from another text than this code has. A migration must never ` +
          'change once applied: restore its file and put the change into a new one',
      );
    }
  }
  const done = new Set(applied.map((row) => row.migration_name));
  return migrations.filter((migration) => !done.has(migration.name));
}

async function apply(tx: pg.PoolClient, migration: Migration): Promise<void> {
  const started_at = new Date();
  try {
    await tx.query(unlimited(migration.sql));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new MigrationError(`The migration ${migration.name} failed, nothing was changed: ${reason}`, {
      cause: error,
    });
  }
  await tx.query(
    `INSERT INTO _prisma_migrations (id, checksum, finished_at, migration_name, logs, started_at, applied_steps_count)
     VALUES ($1, $2, clock_timestamp(), $3, NULL, $4, 1)`,
    [randomUUID(), migration.checksum, migration.name, started_at],
  );
}

function unlimited(text: string): pg.QueryConfig & { query_timeout: number } {
  return { text, query_timeout: NO_ANSWER_LIMIT_MS };
}

/** As Prisma makes it. */
const CREATE_RECORD = `
  CREATE TABLE IF NOT EXISTS _prisma_migrations (
    id VARCHAR(36) PRIMARY KEY NOT NULL,
    checksum VARCHAR(64) NOT NULL,
    finished_at TIMESTAMPTZ,
    migration_name VARCHAR(255) NOT NULL,
    logs TEXT,
    rolled_back_at TIMESTAMPTZ,
    started_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    applied_steps_count INTEGER NOT NULL DEFAULT 0
  )`;
