import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/database/embedded/server.js';
import { readPostmaster } from '../../src/database/embedded/postmaster.js';
import { isRunning, processesIn } from '../../src/database/processes.js';

const is_root = process.getuid?.() === 0;
const on_linux = process.platform === 'linux';

let prepared: string;
let data_dir: string;
let started: EmbeddedPostgres[];
let helpers: ChildProcess[];

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'oncepay-embedded-'));
  if (is_root) chmodSync(folder, 0o711);
  return folder;
}

// Data made once; most tests begin with a copy of them.
beforeAll(async () => {
  prepared = newFolder();
  const server = await startEmbeddedPostgres({ data_dir: prepared });
  await ask(server, 'CREATE TABLE kept AS SELECT 42 AS answer');
  await server.stop();
});
afterAll(() => {
  rmSync(prepared, { recursive: true, force: true });
});
beforeEach(() => {
  data_dir = newFolder();
  started = [];
  helpers = [];
});
afterEach(async () => {
  await Promise.all(started.map((server) => server.stop()));
  for (const helper of helpers) helper.kill('SIGKILL');
  const data = join(data_dir, 'postgres');
  if (lstatSync(data, { throwIfNoEntry: false })?.isSymbolicLink() === true) {
    rmSync(dirname(realpathSync(data)), { recursive: true, force: true });
  }
  rmSync(data_dir, { recursive: true, force: true });
});

function usePreparedData(): void {
  execFileSync('cp', ['-a', `${prepared}/.`, data_dir]);
}

/** Smaller than in earnest, otherwise the same. */
async function start(directory = data_dir): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({ data_dir: directory, settings: { shared_buffers: '16MB' } });
  started.push(server);
  return server;
}

async function ask<T>(server: EmbeddedPostgres, sql: string): Promise<T[]> {
  const client = new pg.Client({ connectionString: server.url });
  await client.connect();
  try {
    const { rows } = await client.query({ text: sql, rowMode: 'array' });
    return rows.map((row: T[]) => row[0] as T);
  } finally {
    await client.end();
  }
}

function pidOf(server: EmbeddedPostgres): number {
  return readPostmaster(server.directory)!.pid;
}

test('the first start makes the data, the second finds them; between them nothing runs', async () => {
  const first = await start();
  await ask(first, 'CREATE TABLE kept AS SELECT 42 AS answer');
  await first.stop();
  expect(processesIn(first.directory)).toEqual([]);
  expect(existsSync(join(first.directory, 'postmaster.pid'))).toBe(false);
  const second = await start();
  expect(second.reused).toBe(false);
  expect(await ask(second, 'SELECT answer FROM kept')).toEqual([42]);
});

test('nothing of durability is given up, and nobody else gets in', async () => {
  const server = await start();
  const settings = `SELECT name || '=' || setting FROM pg_settings
    WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'listen_addresses', 'unix_socket_directories', 'server_encoding') ORDER BY name`;
  expect(await ask(server, settings)).toEqual([
    'fsync=on',
    'full_page_writes=on',
    'listen_addresses=127.0.0.1',
    'server_encoding=UTF8',
    'synchronous_commit=on',
    'unix_socket_directories=',
  ]);
  const stranger = new pg.Client({ connectionString: server.url.replace(/:[^:@]*@/, ':guess@') });
  await expect(stranger.connect()).rejects.toMatchObject({ code: '28P01' });
  for (const name of ['postgres-password', 'postgres.log'])
    expect(statSync(join(data_dir, name)).mode & 0o777).toBe(0o600);
  expect(statSync(server.directory).mode & 0o777).toBe(0o700);
});

test('a server that still runs is used again, as after kill -9 of the service', async () => {
  usePreparedData();
  const first = await start();
  const second = await start();
  expect(second.reused).toBe(true);
  expect(second.url).toBe(first.url);
  expect(await ask(second, 'SELECT answer FROM kept')).toEqual([42]);
  await second.stop();
  expect(processesIn(first.directory)).toEqual([]);
});

test('after kill -9 of PostgreSQL itself the next start repairs what was committed', async () => {
  usePreparedData();
  const first = await start();
  await ask(first, 'UPDATE kept SET answer = 43');
  process.kill(pidOf(first), 'SIGKILL');
  const second = await start();
  expect(second.reused).toBe(false);
  expect(await ask(second, 'SELECT answer FROM kept')).toEqual([43]);
});

test('a start that meets one that is stopping waits for its end', async () => {
  usePreparedData();
  const first = await start();
  const stopping = first.stop();
  const second = await start();
  await stopping;
  expect(await ask(second, 'SELECT 1')).toEqual([1]);
});

/** Leaves the file as a server does that was killed, with a pid that means somebody else now. */
async function leaveBehind(pid: number): Promise<void> {
  usePreparedData();
  const first = await start();
  const file = join(first.directory, 'postmaster.pid');
  const [, ...rest] = readFileSync(file, 'utf8').split('\n');
  process.kill(pidOf(first), 'SIGKILL');
  await vi.waitUntil(() => processesIn(first.directory).length === 0);
  writeFileSync(file, [pid, ...rest].join('\n'));
}

test.runIf(on_linux)('a pid that another process has by now is not taken for a server', async () => {
  await leaveBehind(process.pid);
  expect((await start()).reused).toBe(false);
});

test.runIf(on_linux)('a zombie is not taken for a server', async () => {
  // `exec` makes the parent a program that never collects its child, which ends when its input does: by a number of its
  // own, since a shell gives what runs in the background /dev/null for 0.
  const parent = spawn('/bin/sh', ['-c', 'exec 3<&0; cat <&3 & echo $!; exec sleep 60'], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  helpers.push(parent);
  const [said] = (await once(parent.stdout, 'data')) as [Buffer];
  const zombie = Number(said.toString());
  await vi.waitUntil(() => readFileSync(`/proc/${String(parent.pid)}/comm`, 'utf8').startsWith('sleep'));
  parent.stdin.end();
  await vi.waitUntil(() => readFileSync(`/proc/${zombie}/stat`, 'utf8').includes(') Z '));
  expect(isRunning(zombie)).toBe(false);
  await leaveBehind(zombie);
  expect((await start()).reused).toBe(false);
});

test('a first start that broke off leaves nothing in the way', async () => {
  mkdirSync(join(data_dir, 'postgres.unfinished'));
  writeFileSync(join(data_dir, 'postgres.unfinished', 'half'), 'made');
  await start();
  expect(readdirSync(data_dir).filter((name) => name.startsWith('postgres.unf'))).toEqual([]);
});

test('data whose password is lost are not started, and not touched', async () => {
  usePreparedData();
  const first = await start();
  await first.stop();
  rmSync(join(data_dir, 'postgres-password'));
  await expect(start()).rejects.toThrow(/postgres-password is missing/);
  expect(existsSync(join(data_dir, 'postgres', 'PG_VERSION'))).toBe(true);
});

test.runIf(is_root)(
  'as root in a folder that only root may enter, the data lie where the server gets at them',
  async () => {
    const closed = join(data_dir, 'closed');
    mkdirSync(join(closed, 'data'), { recursive: true });
    chmodSync(closed, 0o700);
    const first = await start(join(closed, 'data'));
    expect(first.directory).toMatch(/^\/var\/lib\/oncepay\/data-/);
    await ask(first, 'CREATE TABLE kept AS SELECT 42 AS answer');
    await first.stop();
    const second = await start(join(closed, 'data'));
    expect(await ask(second, 'SELECT answer FROM kept')).toEqual([42]);
    await second.stop();
    rmSync(dirname(second.directory), { recursive: true });
  },
);
