import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import request from 'supertest';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readPostmaster, stopServer } from '../../src/database/embedded/postmaster.js';
import { isRunning } from '../../src/database/processes.js';
import { createTestDatabase } from '../support/database.js';
import { allGone, type SeveralProcesses, startSeveral } from '../support/processes.js';
import { freePort } from '../../scripts/free-port.js';
import { openFolder, startServiceProcess } from '../support/service.js';
import { startSimulatorProcess } from '../support/simulator.js';
import { soon } from '../support/soon.js';

// How a service of several processes begins and ends.
const LIMIT_MS = 120_000;
let clean_up: (() => unknown)[];
beforeEach(() => {
  clean_up = [];
});
afterEach(async () => {
  for (const clean of clean_up.reverse()) await clean();
});

async function start(env: Readonly<Record<string, string | undefined>>): Promise<SeveralProcesses> {
  const service = await startSeveral(2, env);
  clean_up.push(() => service.kill());
  return service;
}

async function startAlone(env: Readonly<Record<string, string>> = {}) {
  const [database, simulator] = await Promise.all([createTestDatabase(), startSimulatorProcess()]);
  clean_up.push(
    () => database.drop(),
    () => simulator.stop(),
  );
  return { simulator, service: await start({ ...database.env, SANDBOX_URL: simulator.url, ...env }) };
}

/** On a connection of its own, so that round robin gives two of them to two workers. */
function charge({ url, api_key }: SeveralProcesses, payment_method: string, key = randomUUID()) {
  return request(url)
    .post('/payments')
    .set({ authorization: `Bearer ${api_key}`, 'idempotency-key': key })
    .send({ amount: '12.50', currency: 'EUR', customer_id: 'c', external_payment_id: key, payment_method });
}

function pidsOf(service: SeveralProcesses): number[] {
  return service.workers().map(({ pid }) => pid);
}

/** Charges that take a while, one at each worker, with the provider already at them. */
async function twoUnderWay(payment_method: string, env: Readonly<Record<string, string>> = {}) {
  const started = await startAlone(env);
  const answers = [1, 2].map(() => charge(started.service, payment_method).then((answer) => answer));
  await soon(async () => expect(await started.simulator.calls()).toHaveLength(2), { interval: 5 });
  return { ...started, answers, pids: pidsOf(started.service) };
}

test.each(['SIGTERM', 'SIGINT'] as const)(
  '%s to the parent: what is under way at every worker gets its answer, then all end, with 0',
  async (signal) => {
    const { service, simulator, answers, pids } = await twoUnderWay('pm_slow_1500');
    const ended = service.stop(signal);
    void service.stop(signal);
    for (const answer of await Promise.all(answers)) {
      expect(answer).toMatchObject({ status: 201, headers: { connection: 'close' } });
    }
    expect(await ended).toBe(0);
    await allGone(pids);
    expect((await simulator.movements()).map(({ kind }) => kind)).toEqual(['charge', 'charge']);
    for (const worker of [1, 2]) {
      expect(service.log()).toContainEqual(expect.objectContaining({ worker, msg: 'stopped' }));
    }
  },
  LIMIT_MS,
);

test(
  'SIGINT to all of them at once, as Ctrl-C sends it, is the same',
  async () => {
    const { service, answers, pids } = await twoUnderWay('pm_slow_1500');
    for (const pid of pids) process.kill(pid, 'SIGINT');
    const ended = service.stop('SIGINT');
    for (const answer of await Promise.all(answers)) expect(answer.status).toBe(201);
    expect(await ended).toBe(0);
    await allGone(pids);
    expect(service.output()).not.toContain('another takes its place');
  },
  LIMIT_MS,
);

test(
  'kill -9 of the parent: the workers finish what is under way and end; nobody takes new requests',
  async () => {
    const { service, simulator, answers, pids } = await twoUnderWay('pm_slow_1500');
    process.kill(service.pid, 'SIGKILL');
    for (const answer of await Promise.all(answers)) expect(answer.status).toBe(201);
    await allGone(pids);
    await expect(fetch(`${service.url}/health/live`)).rejects.toThrow();
    expect(await simulator.movements()).toHaveLength(2);
    expect(service.log().filter(({ event }) => event === 'the parent is gone')).toHaveLength(2);
  },
  LIMIT_MS,
);

test(
  'SHUTDOWN_TIMEOUT_MS holds over all: a worker that does not end is killed, and the end says so',
  async () => {
    const { service } = await startAlone({ PROVIDER_TIMEOUT_MS: '100', SHUTDOWN_TIMEOUT_MS: '1000' });
    const pids = pidsOf(service);
    process.kill(pids[0]!, 'SIGSTOP');
    expect(await service.stop()).toBe(1);
    await allGone(pids);
    expect(service.output()).toMatch(/The drain took longer than SHUTDOWN_TIMEOUT_MS, 1000 ms/);
  },
  LIMIT_MS,
);

/** Loaded into every process of the service: at SIGUSR2 something goes wrong that nobody catches. */
const FAILING = 'process.on("SIGUSR2",()=>{throw new Error("nobody caught this")})';

test(
  'what nobody caught in a worker: its charge gets its answer, then it ends, and another takes its place',
  async () => {
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(FAILING)}`;
    const { service, answers, pids } = await twoUnderWay('pm_slow_1500', { NODE_OPTIONS });
    process.kill(pids[1]!, 'SIGUSR2');
    for (const answer of await Promise.all(answers)) expect(answer.status).toBe(201);
    await soon(() => expect(service.worker(2).pid).not.toBe(pids[1]));
    expect(service.worker(1).pid).toBe(pids[0]);
    expect(service.log()).toContainEqual(expect.objectContaining({ worker: 2, msg: 'uncaughtException' }));
    expect(service.log()).toContainEqual(
      expect.objectContaining({ worker: 2, pid: pids[1], code: 1, msg: 'a worker ended; another takes its place' }),
    );
  },
  LIMIT_MS,
);

test(
  'embedded: the database and the simulator are the parent’s; kill -9 of it leaves the database to the next start',
  async () => {
    const data_dir = openFolder();
    const postgres = join(data_dir, 'postgres');
    clean_up.push(async () => {
      const left = readPostmaster(postgres);
      if (left !== undefined && isRunning(left.pid)) await stopServer(left.pid, 10_000);
      rmSync(data_dir, { recursive: true, force: true });
    });
    const first = await start({ DATA_DIR: data_dir });
    const key = randomUUID();
    const payment = await charge(first, 'pm_success', key).expect(201);
    const before = readPostmaster(postgres);
    const pids = pidsOf(first);
    await first.kill();
    await allGone(pids);
    expect(isRunning(before!.pid)).toBe(true);

    const second = await start({ DATA_DIR: data_dir });
    expect(readPostmaster(postgres)?.pid).toBe(before!.pid);
    const replay = await charge(second, 'pm_success', key).expect(201);
    expect(replay.text).toBe(payment.text);
    await charge(second, 'pm_success').expect(201);
    expect(await second.stop()).toBe(0);
    expect(isRunning(before!.pid)).toBe(false);
    expect(readdirSync(join(data_dir, 'lock'))).toEqual([]);
  },
  LIMIT_MS,
);

test(
  'a start that fails says why once, in one line, ends what it had started, and exits with 1',
  async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    clean_up.push(() => taken.close());
    const database = await createTestDatabase();
    clean_up.push(() => database.drop());
    const port = String((taken.address() as { port: number }).port);
    const cases: [Readonly<Record<string, string>>, RegExp][] = [
      [{ ...database.env, PORT: port }, /^oncepay: start failed: PORT: .*EADDRINUSE.*set PORT/gm],
      [{ DATABASE_URL: `postgres://127.0.0.1:${await freePort()}/x` }, /^oncepay: start failed: .*ECONNREFUSED/gm],
      [{ PROCESSES: '0' }, /^oncepay: configuration failed: PROCESSES: expected a whole number from 1 to 256/gm],
    ];
    for (const [env, reason] of cases) {
      const service = await startServiceProcess({
        env: { PROCESSES: '2', SANDBOX_URL: 'http://127.0.0.1:1', ...env },
        wait: false,
      });
      clean_up.push(() => service.kill());
      expect(await service.ended, service.output()).toBe(1);
      expect(service.output().match(reason), service.output()).toHaveLength(1);
      expect(service.output()).not.toMatch(/^\s+at /m);
    }
  },
  LIMIT_MS,
);
