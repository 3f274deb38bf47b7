import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { readPostmaster, stopServer } from '../../src/database/embedded/postmaster.js';
import { isRunning } from '../../src/database/processes.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { freePort } from '../../scripts/free-port.js';
import { openFolder, type ServiceProcess, startServiceProcess } from '../support/service.js';
import { type SimulatorProcess, startSimulatorProcess } from '../support/simulator.js';

const LIMIT_MS = 120_000;
const run = promisify(execFile);

let services: ServiceProcess[];
let clean_up: (() => unknown)[];
beforeEach(() => {
  services = [];
  clean_up = [];
});
afterEach(async () => {
  await Promise.all(services.map((service) => service.kill()));
  for (const clean of clean_up.reverse()) await clean();
});

async function start(env: Record<string, string | undefined>, wait = true): Promise<ServiceProcess> {
  const service = await startServiceProcess({ env, wait });
  services.push(service);
  return service;
}

/** Against a database and a simulator of their own, as instances of a deployment run. */
async function startAlone(env: Record<string, string> = {}) {
  const database: TestDatabase = await createTestDatabase();
  const simulator: SimulatorProcess = await startSimulatorProcess();
  clean_up.push(
    () => database.drop(),
    () => simulator.stop(),
  );
  const full = { ...database.env, SANDBOX_URL: simulator.url, ...env };
  return { service: await start(full), simulator, database, env: full };
}

/** A DATA_DIR whose PostgreSQL ends with the test. */
function newDataDir(): string {
  const data_dir = openFolder();
  clean_up.push(async () => {
    const left = readPostmaster(join(data_dir, 'postgres'));
    if (left !== undefined && isRunning(left.pid)) await stopServer(left.pid, 10_000);
    rmSync(data_dir, { recursive: true, force: true });
  });
  return data_dir;
}

function charge(service: ServiceProcess, payment_method = 'pm_success', key = randomUUID()): Promise<Response> {
  return fetch(`${service.url}/payments`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.api_key}`, 'content-type': 'application/json', 'idempotency-key': key },
    body: JSON.stringify({
      amount: '12.50',
      currency: 'EUR',
      customer_id: 'c',
      external_payment_id: key,
      payment_method,
    }),
  });
}

async function hasCalls(simulator: SimulatorProcess): Promise<void> {
  await vi.waitUntil(async () => (await simulator.calls()).length > 0, { timeout: 10_000 });
}

test.each(['SIGTERM', 'SIGINT'] as const)(
  '%s, also twice: the charge under way gets its answer, then the process ends with 0',
  async (signal) => {
    const { service, simulator } = await startAlone();
    const answer = charge(service, 'pm_slow_1500');
    await hasCalls(simulator);
    const ended = service.stop(signal);
    void service.stop(signal);
    expect((await answer).status).toBe(201);
    expect((await answer).headers.get('connection')).toBe('close');
    expect(await ended).toBe(0);
    expect((await simulator.movements()).map(({ kind }) => kind)).toEqual(['charge']);
    await expect(fetch(`${service.url}/health/live`)).rejects.toThrow();
  },
  LIMIT_MS,
);

test(
  'a lone connection that is kept open does not hold the end',
  async () => {
    const { service } = await startAlone();
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write('GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n');
    await once(socket, 'data');
    const begun = performance.now();
    expect(await service.stop()).toBe(0);
    expect(performance.now() - begun).toBeLessThan(5_000);
  },
  LIMIT_MS,
);

test(
  'a drain that takes too long is cut at its limit, and says so',
  async () => {
    const limits = { PROVIDER_TIMEOUT_MS: '100', LEASE_MS: '30000', SHUTDOWN_TIMEOUT_MS: '200' };
    const { service, database } = await startAlone(limits);
    const holder = new pg.Client({ connectionString: database.direct_url });
    await holder.connect();
    await holder.query('BEGIN; LOCK TABLE idempotency_record IN ACCESS EXCLUSIVE MODE');
    const stuck = charge(service).catch(() => undefined);
    await vi.waitUntil(async () => {
      const { rowCount } = await holder.query(
        `SELECT FROM pg_locks WHERE NOT granted AND relation = 'idempotency_record'::regclass`,
      );
      return rowCount !== 0;
    });
    expect(await service.stop()).toBe(1);
    expect(service.output()).toMatch(/The drain took longer than SHUTDOWN_TIMEOUT_MS, 200 ms/);
    await holder.end();
    await stuck;
  },
  LIMIT_MS,
);

test(
  'embedded: what it prints works when pasted; everything is private; the database ends last; a second start has it all',
  async () => {
    const data_dir = newDataDir();
    const env = { DATA_DIR: data_dir, BOOTSTRAP_API_KEY: undefined };
    const first = await start(env);
    const line = await curlLine(first);
    const answers = await Promise.all([1, 2].map(() => run('bash', ['-c', line])));
    for (const { stdout } of answers)
      expect(JSON.parse(stdout)).toMatchObject({ status: 'succeeded', amount: '12.50' });
    const [id] = answers.map(({ stdout }) => (JSON.parse(stdout) as { id: string }).id);
    const key = readFileSync(join(data_dir, 'api-key'), 'utf8').trim();
    expect(key).toMatch(/^oncepay_sk_[\w-]{43}$/);
    expect(first.output()).not.toContain(key);
    for (const name of ['api-key', 'sandbox-webhook-secret', 'postgres-password', 'sandbox/ledger.jsonl']) {
      expect(statSync(join(data_dir, name)).mode & 0o077, name).toBe(0);
    }
    const postmaster = readPostmaster(join(data_dir, 'postgres'));
    expect(await first.stop()).toBe(0);
    expect(isRunning(postmaster!.pid)).toBe(false);
    expect(readdirSync(join(data_dir, 'lock'))).toEqual([]);

    const second = await start(env);
    const again = await fetch(`${second.url}/payments/${String(id)}`, { headers: { authorization: `Bearer ${key}` } });
    expect(await again.json()).toMatchObject({ id, status: 'succeeded' });
    expect(await second.stop()).toBe(0);
  },
  LIMIT_MS,
);

async function curlLine(service: ServiceProcess): Promise<string> {
  const find = (): string | undefined => /^curl .*$/m.exec(service.output())?.[0];
  await vi.waitUntil(() => find() !== undefined);
  return find() ?? '';
}

test(
  'embedded: after kill -9 the next start finds PostgreSQL running and uses it',
  async () => {
    const data_dir = newDataDir();
    const first = await start({ DATA_DIR: data_dir });
    const key = randomUUID();
    const payment = await (await charge(first, 'pm_success', key)).json();
    const before = readPostmaster(join(data_dir, 'postgres'));
    await first.kill();
    expect(isRunning(before!.pid)).toBe(true);
    const second = await start({ DATA_DIR: data_dir });
    expect(readPostmaster(join(data_dir, 'postgres'))?.pid).toBe(before!.pid);
    const replay = await charge(second, 'pm_success', key);
    expect(replay.headers.get('idempotent-replayed')).toBe('true');
    expect(await replay.json()).toEqual(payment);
    expect(await second.stop()).toBe(0);
    expect(isRunning(before!.pid)).toBe(false);
  },
  LIMIT_MS,
);

test(
  'embedded: a second service on the same DATA_DIR is refused, and the first one does not notice',
  async () => {
    const data_dir = newDataDir();
    const first = await start({ DATA_DIR: data_dir });
    const second = await start({ DATA_DIR: data_dir }, false);
    expect(await second.ended).toBe(1);
    expect(second.output()).toMatch(/^oncepay: start failed: DATA_DIR: .* is in use by another service \(pid \d+/m);
    expect((await charge(first)).status).toBe(201);
    expect(await first.stop()).toBe(0);
  },
  LIMIT_MS,
);

test(
  'a start that fails says why in one line, ends what it had started, and exits with 1',
  async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    clean_up.push(() => taken.close());
    const port = String((taken.address() as { port: number }).port);
    const data_dir = newDataDir();
    const cases: [Record<string, string>, RegExp][] = [
      [
        { LEASE_MS: '40000' },
        /^oncepay: configuration failed: LEASE_MS: expected a whole number of milliseconds from 100 to 30000/m,
      ],
      [{ DATABASE_URL: `postgres://127.0.0.1:${await freePort()}/x` }, /^oncepay: start failed: .*ECONNREFUSED/m],
      [{ DATA_DIR: data_dir, PORT: port }, /^oncepay: start failed: PORT: .*EADDRINUSE.*set PORT/m],
    ];
    for (const [env, reason] of cases) {
      const service = await start({ SANDBOX_URL: 'http://127.0.0.1:1', ...env }, false);
      expect(await service.ended, service.output()).toBe(1);
      expect(service.output()).toMatch(reason);
      expect(service.output()).not.toMatch(/^\s+at /m);
    }
    expect(readPostmaster(join(data_dir, 'postgres'))).toBeUndefined();
  },
  LIMIT_MS,
);
