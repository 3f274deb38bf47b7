import { spawn, spawnSync } from 'node:child_process';
import {
  chownSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import pg from 'pg';
import { keepSecret, randomSecret } from '../secret-file.js';
import { type Account, ownerAccount, serverAccount } from './account.js';
import { type Binaries, prepareBinaries } from './binaries.js';
import { dataFolder } from './folder.js';
import { findRunning, stopServer, tellToEnd, waitUntilReady } from './postmaster.js';

/** A PostgreSQL server of our own. */
export interface EmbeddedPostgres {
  readonly url: string;
  /** Where its data lie, without symbolic links. */
  readonly directory: string;
  /** True: it was still running, as after kill -9 of the service. */
  readonly reused: boolean;
  /** Ends it, clean. Safe to call again. */
  stop(): Promise<void>;
  /** Tells it to end and does not wait. */
  abandon(): void;
}

export interface EmbeddedOptions {
  /** Exists; the server's data, password and log go below it. */
  readonly data_dir: string;
  /** Beside or instead of ours, for tests. */
  readonly settings?: Readonly<Record<string, string>>;
}

const USER = 'oncepay';
const DATABASE = 'oncepay';
const READY_LIMIT_MS = 60_000;
const STOP_LIMIT_MS = 20_000;
const PORT_TRIES = 5;
const LOG_MAX_BYTES = 10 * 1024 * 1024;

/** Nothing of durability is given up: what was committed is on disk. */
const SETTINGS: Readonly<Record<string, string>> = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '100',
  shared_buffers: '256MB',
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  // One server, no replicas: less to log. Checkpoints by time rather than by volume, spread out.
  wal_level: 'minimal',
  max_wal_senders: '0',
  max_wal_size: '2GB',
  checkpoint_timeout: '15min',
  timezone: 'UTC',
  log_timezone: 'UTC',
  jit: 'off',
  // What callers sent must not get into the server's log: no details of rows, no statements.
  log_error_verbosity: 'terse',
  log_min_error_statement: 'panic',
  log_checkpoints: 'off',
};

/**
 * Starts PostgreSQL on the data below `data_dir`, making them at the first start, or takes the one that still runs on
 * them. It listens on 127.0.0.1 only, with a random password. It is in a session of its own, so that Ctrl-C does not
 * reach it, and goes on when this process is killed.
 * @throws Error with a text for people
 */
export async function startEmbeddedPostgres(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const newcomer = serverAccount();
  const data = dataFolder(options.data_dir, newcomer);
  const password_file = join(options.data_dir, 'postgres-password');
  if (existsSync(data) && !existsSync(password_file)) {
    throw new Error(
      `${password_file} is missing, so nobody can get into the data in ${data}. Put it back, or remove both`,
    );
  }
  const password = keepSecret(password_file, randomSecret);
  const binaries = prepareBinaries(existsSync(data) ? ownerAccount(data) : newcomer, dirname(data));
  if (!existsSync(data)) initialise(data, binaries, newcomer, password);
  const account = ownerAccount(data);
  checkVersion(data, binaries);
  const running = await findRunning(data, READY_LIMIT_MS);
  const log_file = join(options.data_dir, 'postgres.log');
  const settings = { ...SETTINGS, ...options.settings };
  const server = running ?? (await launch({ data, binaries, account, settings, log_file }));
  const address = (database: string): string => `postgres://${USER}:${password}@127.0.0.1:${server.port}/${database}`;
  let stopping: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopping ??= stopServer(server.pid, STOP_LIMIT_MS));
  try {
    await ensureDatabase(address('postgres'));
  } catch (error) {
    if (running === undefined) await stop();
    throw new Error(`The embedded PostgreSQL in ${data} does not let us in: ${messageOf(error)}`, { cause: error });
  }
  return {
    url: address(DATABASE),
    directory: data,
    reused: running !== undefined,
    stop,
    abandon: () => tellToEnd(server.pid),
  };
}

/** Makes the data under another name first, so that a first start that broke off leaves nothing half made. */
function initialise(data: string, binaries: Binaries, account: Account | null, password: string): void {
  const unfinished = `${data}.unfinished`;
  const password_file = `${data}.password`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { mode: 0o700 });
  writeFileSync(password_file, password, { mode: 0o600 });
  if (account !== null) {
    chownSync(unfinished, account.uid, account.gid);
    chownSync(password_file, account.uid, account.gid);
  }
  const run = spawnSync(
    join(binaries.directory, 'bin', 'initdb'),
    [
      '--pgdata',
      unfinished,
      '--username',
      USER,
      '--pwfile',
      password_file,
      '--auth',
      'scram-sha-256',
      '--encoding',
      'UTF8',
      '--locale',
      'C',
    ],
    { ...(account ?? {}), cwd: '/', env: serverEnvironment(), encoding: 'utf8' },
  );
  rmSync(password_file, { force: true });
  if (run.status !== 0) {
    rmSync(unfinished, { recursive: true, force: true });
    throw new Error(`initdb failed: ${run.error?.message ?? run.stderr.trim()}`);
  }
  renameSync(unfinished, data);
}

function checkVersion(data: string, binaries: Binaries): void {
  const made = readFileSync(join(data, 'PG_VERSION'), 'utf8').trim();
  const have = binaries.version.split('.')[0];
  if (made !== have) {
    throw new Error(
      `The data in ${data} are of PostgreSQL ${made}, the programs of ${have}. Move them over with pg_dump of the old version, ` +
        'or set DATA_DIR to another folder',
    );
  }
}

interface Launch {
  readonly data: string;
  readonly binaries: Binaries;
  readonly account: Account | null;
  readonly settings: Readonly<Record<string, string>>;
  readonly log_file: string;
}

async function launch(options: Launch): Promise<{ readonly pid: number; readonly port: number }> {
  for (let tries = 1; ; tries++) {
    const port = await freePort();
    try {
      return await launchOn(port, options);
    } catch (error) {
      // Between our look and its start somebody may have taken the port.
      if (tries >= PORT_TRIES || !messageOf(error).includes('could not create any TCP/IP sockets')) throw error;
    }
  }
}

async function launchOn(port: number, { data, binaries, account, settings, log_file }: Launch) {
  const log = openLog(log_file);
  const log_start = statSync(log_file).size;
  const args = Object.entries({ ...settings, port: String(port) }).flatMap(([name, value]) => [
    '-c',
    `${name}=${value}`,
  ]);
  const child = spawn(join(binaries.directory, 'bin', 'postgres'), ['-D', data, ...args], {
    ...(account ?? {}),
    cwd: '/',
    env: serverEnvironment(),
    detached: true,
    stdio: ['ignore', log, log],
  });
  closeSync(log);
  let failure: string | undefined;
  child.once('error', (error) => (failure = `PostgreSQL can't be started: ${error.message}`));
  child.once('exit', () => (failure = 'PostgreSQL ended while starting'));
  child.unref();
  return waitUntilReady(data, READY_LIMIT_MS, () => {
    if (failure === undefined) return undefined;
    return `${failure}: ${readFileSync(log_file, 'utf8').slice(log_start).trim()} (${log_file})`;
  });
}

function openLog(file: string): number {
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  return openSync(file, size > LOG_MAX_BYTES ? 'w' : 'a', 0o600);
}

/** Nothing of ours: PG* variables would change where the server looks, and secrets are none of its business. */
function serverEnvironment(): NodeJS.ProcessEnv {
  return { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };
}

async function freePort(): Promise<number> {
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      const port = typeof address === 'object' && address !== null ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}

async function ensureDatabase(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: READY_LIMIT_MS });
  await client.connect();
  try {
    const { rows } = await client.query('SELECT 1 FROM pg_database WHERE datname = $1', [DATABASE]);
    if (rows.length === 0) await client.query(`CREATE DATABASE ${DATABASE}`);
  } finally {
    await client.end();
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
