import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, chownSync, cpSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { serverAccount } from '../../src/database/embedded/account.js';
import { SERVICE_SETTINGS } from '../../src/database/session.js';
import { freePort } from '../free-port.js';
import { findPgBouncer, type PgBouncerProgram } from './program.js';

const HOST = '127.0.0.1';
const READY_LIMIT_MS = 15_000;
const STOP_LIMIT_MS = 5_000;

export interface PgBouncerOptions {
  /** Of the PostgreSQL behind it, with who logs in there. All of its databases can be reached. */
  readonly server_url: string;
  /** A free one by default. */
  readonly port?: number;
  /** Sessions at the server, for each database. */
  readonly pool_size: number;
  /** What each of them gets; what the service needs by default. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Lines of [pgbouncer], beside or instead of ours. */
  readonly ini?: Readonly<Record<string, string>>;
}

/** A PgBouncer in transaction mode, as a child process. */
export interface PgBouncer {
  readonly version: string;
  readonly port: number;
  /** The same database as `url`, through the pooler. */
  through(url: string): string;
  /** A command of its console, such as `SHOW POOLS` or `RECONNECT`. */
  console(command: string): Promise<Record<string, unknown>[]>;
  /** What it has logged so far. */
  log(): string;
  stop(): Promise<void>;
}

/**
 * Starts PgBouncer in front of a PostgreSQL, on this machine only, ready when its console answers.
 * @throws Error that says what is missing on this machine, or PgBouncer's last words
 */
export async function startPgBouncer(options: PgBouncerOptions): Promise<PgBouncer> {
  const program = findPgBouncer();
  if (program === null) throw new Error('There is no PgBouncer here: npx tsx scripts/pgbouncer/fetch.ts');
  const port = options.port ?? (await freePort());
  const folder = mkdtempSync(join(tmpdir(), 'oncepay-pgbouncer-'));
  const through = (url: string): string => Object.assign(new URL(url), { hostname: HOST, port: String(port) }).href;
  const log_file = join(folder, 'pgbouncer.log');
  const log = (): string => readFileSync(log_file, 'utf8');
  const child = launch(program, folder, log_file, { ...iniLines(folder, port, options), ...options.ini }, options);
  const ask = (command: string) => askConsole(through(options.server_url), command);
  const stop = async (): Promise<void> => {
    await endProcess(child);
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const [row] = await ready(child, () => ask('SHOW VERSION'), log);
    return { version: String(row?.version), port, through, console: ask, log, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function iniLines(folder: string, port: number, options: PgBouncerOptions): Record<string, string> {
  return {
    listen_addr: HOST,
    listen_port: String(port),
    unix_socket_dir: '',
    auth_type: 'scram-sha-256',
    auth_file: join(folder, 'userlist.txt'),
    admin_users: decodeURIComponent(new URL(options.server_url).username),
    pool_mode: 'transaction',
    default_pool_size: String(options.pool_size),
    max_client_conn: '2000',
    query_wait_timeout: '5',
    log_connections: '0',
    log_disconnections: '0',
  };
}

/** Runs it as another user where this one is root, which it refuses; its files, then, lie where that user gets at them. */
function launch(
  program: PgBouncerProgram,
  folder: string,
  log_file: string,
  lines: Readonly<Record<string, string>>,
  { server_url, settings = SERVICE_SETTINGS }: PgBouncerOptions,
): ChildProcess {
  const server = new URL(server_url);
  const sets = Object.entries(settings).map(([name, value]) => `SET ${name} = ${value};`);
  const connect_query = sets.length === 0 ? '' : ` connect_query='${sets.join(' ')}'`;
  const ini = [
    '[databases]',
    `* = host=${server.hostname} port=${server.port || '5432'}${connect_query}`,
    '[pgbouncer]',
    ...Object.entries(lines).map(([name, value]) => `${name} = ${value}`),
  ];
  const ini_file = join(folder, 'pgbouncer.ini');
  const user_file = join(folder, 'userlist.txt');
  const [user, password] = [server.username, server.password].map((part) => quoted(decodeURIComponent(part)));
  writeFileSync(ini_file, `${ini.join('\n')}\n`, { mode: 0o600 });
  writeFileSync(user_file, `${user ?? ''} ${password ?? ''}\n`, { mode: 0o600 });
  const account = serverAccount();
  if (account !== null) {
    chmodSync(folder, 0o711);
    for (const file of [ini_file, user_file]) chownSync(file, account.uid, account.gid);
  }
  const { file, libraries } = copied(program, folder);
  const log = openSync(log_file, 'a');
  return spawn(file, [ini_file], {
    cwd: '/',
    ...account,
    env: { ...process.env, ...(libraries.length === 0 ? {} : { LD_LIBRARY_PATH: libraries.join(':') }) },
    stdio: ['ignore', log, log],
  });
}

function quoted(text: string): string {
  return `"${text.replaceAll('"', '""')}"`;
}

/** The checkout may lie where only root can look. */
function copied(program: PgBouncerProgram, folder: string): Pick<PgBouncerProgram, 'file' | 'libraries'> {
  if (program.folder === null) return program;
  const there = join(folder, 'program');
  const moved = (path: string): string => path.replace(program.folder ?? '', there);
  cpSync(program.folder, there, { recursive: true, verbatimSymlinks: true });
  return { file: moved(program.file), libraries: program.libraries.map(moved) };
}

/** @param url of any database through the pooler, as one of its admins */
export async function askConsole(url: string, command: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: Object.assign(new URL(url), { pathname: '/pgbouncer' }).href });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(command)).rows;
  } finally {
    await client.end();
  }
}

async function ready<T>(child: ChildProcess, ask: () => Promise<T>, log: () => string): Promise<T> {
  let failed: Error | undefined;
  child.once('error', (error) => (failed = error));
  const give_up_at = performance.now() + READY_LIMIT_MS;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      const ended = failed !== undefined || child.exitCode !== null || child.signalCode !== null;
      if (ended || performance.now() > give_up_at) {
        throw new Error(`PgBouncer did not get ready: ${failed?.message ?? log().slice(-2000)}`, { cause: error });
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function endProcess(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) {
      resolve();
      return;
    }
    const force = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS);
    child.once('exit', () => {
      clearTimeout(force);
      resolve();
    });
    child.kill('SIGTERM');
  });
}
