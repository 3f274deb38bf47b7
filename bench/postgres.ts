import { chmodSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { startEmbeddedPostgres } from '../src/database/embedded/server.js';
import { sqlState } from '../src/database/transaction.js';
import { countStatements } from './count-statements.js';

/** A PostgreSQL of the benchmark's own, durable as in production. Everything that is compared runs on it. */
export interface Postgres {
  readonly pid: number;
  readonly version: string;
  readonly log_file: string;
  readonly admin: pg.Client;
  url(database: string): string;
  /** Made anew where it exists. */
  createDatabase(name: string): Promise<void>;
  /** Empties every table but those that say who may call, and checkpoints: what follows begins right after one. */
  truncate(database: string): Promise<void>;
  /** Runs SQL in one of the databases. */
  query(database: string, sql: string, values?: readonly unknown[]): Promise<pg.QueryResult<Record<string, unknown>>>;
  transaction(database: string, run: (client: pg.Client) => Promise<void>): Promise<void>;
  stop(): Promise<void>;
}

const DEADLOCK_TRIES = 10;

/**
 * As the service's own embedded server (src/database/embedded), durable, but with the memory of a production server, a
 * log that replicas could read, and its files kept for use again: a new one every two seconds stalls everybody.
 */
export const SETTINGS = {
  wal_level: 'replica',
  max_wal_senders: '10',
  shared_buffers: '2GB',
  max_wal_size: '8GB',
  min_wal_size: '4GB',
  max_connections: '150',
  shared_preload_libraries: 'pg_stat_statements',
  'pg_stat_statements.save': 'off',
} as const;

const KEPT_TABLES = ['_prisma_migrations', 'installation', 'api_client', 'api_key', 'client_audit'];

/** @param directory a folder of the benchmark's own; the server's data go below it */
export async function startPostgres(directory: string): Promise<Postgres> {
  // PostgreSQL runs as another user where this one is root.
  chmodSync(directory, 0o711);
  const data_dir = join(directory, 'postgres');
  mkdirSync(data_dir, { mode: 0o711 });
  const server = await startEmbeddedPostgres({ data_dir, settings: SETTINGS });
  const url = (database: string): string => Object.assign(new URL(server.url), { pathname: `/${database}` }).href;
  const admin = await connect(url('postgres'));
  await admin.query('CREATE EXTENSION IF NOT EXISTS pg_stat_statements');
  await countStatements(admin, false);
  const { rows } = await admin.query<{ version: string }>("SELECT current_setting('server_version') AS version");
  const withClient = async <T>(database: string, run: (client: pg.Client) => Promise<T>): Promise<T> => {
    const client = await connect(url(database));
    try {
      return await run(client);
    } finally {
      await client.end();
    }
  };
  const query: Postgres['query'] = (database, sql, values) =>
    withClient(database, (client) =>
      client.query<Record<string, unknown>>(sql, values === undefined ? undefined : [...values]),
    );
  return {
    pid: Number(readFileSync(join(server.directory, 'postmaster.pid'), 'utf8').split('\n')[0]),
    version: rows[0]?.version ?? 'unknown',
    log_file: join(data_dir, 'postgres.log'),
    admin,
    url,
    query,
    createDatabase: async (name) => {
      await admin.query(`DROP DATABASE IF EXISTS "${name}" WITH (FORCE)`);
      await admin.query(`CREATE DATABASE "${name}"`);
    },
    truncate: async (database) => {
      const found = await query(
        database,
        "SELECT format('%I', tablename) AS name FROM pg_tables WHERE schemaname = 'public' AND tablename <> ALL ($1)",
        [KEPT_TABLES],
      );
      const names = found.rows.map((row) => String(row.name));
      if (names.length > 0) await retriedAfterDeadlock(() => query(database, `TRUNCATE ${names.join(', ')}`));
      await admin.query('CHECKPOINT');
    },
    transaction: (database, run) =>
      withClient(database, async (client) => {
        await client.query('BEGIN');
        await run(client);
        await client.query('COMMIT');
      }),
    stop: async () => {
      await admin.end();
      await server.stop();
    },
  };
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

/** TRUNCATE locks the tables in another order than the jobs of a service that runs on them. */
async function retriedAfterDeadlock(run: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await run();
      return;
    } catch (error) {
      if (sqlState(error) !== '40P01' || tries === DEADLOCK_TRIES) throw error;
    }
  }
}
