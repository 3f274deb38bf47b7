import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import request from 'supertest';
import type pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { INSTALLATION_ID, newCharge, referencesOf } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { scrape, type SeveralProcesses, startSeveral } from '../support/processes.js';
import { type SimulatorProcess, startSimulatorProcess } from '../support/simulator.js';
import { soon } from '../support/soon.js';

// PROCESSES=2 as it really runs: a parent and two workers on one port.
const NEW_CHARGES = 'oncepay_idempotency_outcomes_total{outcome="new"}';
const CHARGES = 'route="/payments",method="POST",status="2xx"';
const UNKNOWN_PAYMENTS = 'oncepay_http_requests_total{route="/payments/:id",method="GET",status="4xx"}';
let database: TestDatabase;
let pool: pg.Pool;
let simulator: SimulatorProcess;
let service: SeveralProcesses;

beforeAll(async () => {
  [database, simulator] = await Promise.all([createTestDatabase(), startSimulatorProcess()]);
  pool = database.openPool({ pool_size: 2 });
  service = await startSeveral(2, {
    ...database.env,
    INSTALLATION_ID,
    SANDBOX_URL: simulator.url,
    SANDBOX_WEBHOOK_SECRETS: simulator.webhook_secret,
    LEASE_MS: '2000',
    RECOVERY_INTERVAL_MS: '100',
    RECONCILE_INTERVAL_MS: '100',
  });
}, 90_000);
afterAll(async () => {
  await service.stop();
  await simulator.stop();
  await pool.end();
  await database.drop();
});

/** On a connection of its own. */
function charge(body: object, key = randomUUID()): request.Test {
  return request(service.url)
    .post('/payments')
    .set({ authorization: `Bearer ${service.api_key}`, 'idempotency-key': key })
    .send(body);
}

async function movements(external_payment_id: string) {
  const references = referencesOf(external_payment_id);
  return (await simulator.movements()).filter(({ reference }) => references.has(reference ?? ''));
}

/** How many requests a worker has answered, by its log. */
function answeredBy(place: number): number {
  return service.log().filter(({ worker, msg }) => worker === place && msg === 'request').length;
}

it('both take requests; the start-up text and its log line come once', async () => {
  // One after the other: of those that come at once a worker may take more, while the other is busy.
  for (let charges = 0; charges < 10; charges += 1) await charge(newCharge()).expect(201);
  await soon(() => expect(answeredBy(1) + answeredBy(2)).toBe(10));
  for (const place of [1, 2]) expect(answeredBy(place), `worker ${place}`).toBeGreaterThan(2);
  expect(service.output().match(/A charge, to paste into a shell/g)).toHaveLength(1);
  expect(service.log().filter(({ msg }) => msg === 'started')).toHaveLength(1);
});

it('every scrape tells the total, whoever answers it, and what the database knows is not added up', async () => {
  const { body } = await charge(newCharge());
  // Its outcome is not known, and nobody asks for it soon.
  await pool.query(
    `update operation set status = 'processing', check_at = clock_timestamp() + interval '1 hour' where payment_id = $1`,
    [body.id],
  );
  const before = (await scrape(service.url)).get(NEW_CHARGES) ?? 0;
  await Promise.all(Array.from({ length: 10 }, () => charge(newCharge())));
  for (let scrapes = 0; scrapes < 4; scrapes += 1) {
    const metrics = await scrape(service.url);
    expect(metrics.get(NEW_CHARGES)).toBe(before + 10);
    expect(metrics.get(`oncepay_http_request_duration_seconds_count{${CHARGES}}`)).toBe(before + 10);
    expect(metrics.get('oncepay_backlog{work="unknown"}')).toBe(1);
    expect(metrics.get('oncepay_backlog_known')).toBe(1);
    expect(metrics.get('oncepay_workers')).toBe(2);
  }
});

it('a worker is killed under load: no charge is lost, none moves twice, and another takes its place', async () => {
  // The one that runs the jobs: who takes its place runs them, and finishes what it left.
  const victim = service.worker(1);
  const authorization = `Bearer ${service.api_key}`;
  const look = () => request(service.url).get(`/payments/${randomUUID()}`).set({ authorization });
  await Promise.all(Array.from({ length: 10 }, () => look().expect(404)));
  expect((await scrape(service.url)).get(UNKNOWN_PAYMENTS)).toBe(10);
  const charges = Array.from({ length: 40 }, () => ({
    body: newCharge({ payment_method: 'pm_slow_answer_300' }),
    key: randomUUID(),
  }));
  const moved = (await simulator.movements()).length;
  const sent = charges.map(({ body, key }) =>
    charge(body, key).then(
      ({ status }) => status,
      () => 'no answer',
    ),
  );
  await soon(async () => expect((await simulator.movements()).length).toBeGreaterThan(moved + 23), { interval: 5 });
  process.kill(victim.pid, 'SIGKILL');
  const statuses = await Promise.all(sent);
  expect(statuses.filter((status) => status === 'no answer').length).toBeGreaterThan(0);
  expect(statuses.filter((status) => status === 201).length).toBeGreaterThan(5);

  await soon(() => expect(service.worker(1).pid).not.toBe(victim.pid));
  expect(service.log()).toContainEqual(
    expect.objectContaining({ msg: 'a worker ended; another takes its place', worker: 1, signal: 'SIGKILL' }),
  );
  // Nobody repeats a request: what had begun is finished by the jobs when its lease is over.
  await soon(async () => {
    const { rows } = await pool.query(`select 1 from idempotency_record where state = 'in_progress'`);
    expect(rows).toEqual([]);
  });
  for (const { body, key } of charges) {
    const answer = await charge(body, key);
    expect(answer).toMatchObject({ status: 201, body: { status: 'succeeded' } });
    expect(await movements(body.external_payment_id)).toHaveLength(1);
  }
  const metrics = await scrape(service.url);
  // What the dead worker had counted still counts: a total that falls looks like a restart, and then everything is new.
  expect(metrics.get(UNKNOWN_PAYMENTS)).toBe(10);
  expect(metrics.get('oncepay_worker_restarts_total')).toBe(1);
});

it('a connection that was handed to a worker which died before it took it is closed at once', async () => {
  const victim = service.worker(2);
  process.kill(victim.pid, 'SIGSTOP');
  // One of them goes to the worker that stands still. It takes no second one, so the others are answered.
  const results = Array.from({ length: 4 }, () => ({ answered: false, ended: false }));
  const sockets = results.map((result) => {
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
    socket.on('error', () => undefined);
    socket.on('data', () => (result.answered = true));
    socket.on('close', () => (result.ended = true));
    socket.write('GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
    return socket;
  });
  try {
    await soon(() => expect(results.filter(({ answered, ended }) => answered && ended)).toHaveLength(3));
    expect(results.filter(({ ended }) => !ended)).toHaveLength(1);
  } finally {
    process.kill(victim.pid, 'SIGKILL');
  }
  await soon(() => expect(results.filter(({ ended }) => !ended)).toEqual([]));
  for (const socket of sockets) socket.destroy();
  await soon(() => expect(service.worker(2).pid).not.toBe(victim.pid));
});

it('SIGTERM to one worker: its charge gets its answer, others are served meanwhile, and another takes its place', async () => {
  const victim = service.worker(2);
  const calls = (await simulator.calls()).length;
  const slow = [1, 2].map(() => charge(newCharge({ payment_method: 'pm_slow_800' })).then(({ status }) => status));
  await soon(async () => expect((await simulator.calls()).length).toBe(calls + 2), { interval: 5 });
  process.kill(victim.pid, 'SIGTERM');
  expect((await charge(newCharge())).status).toBe(201);
  expect(await Promise.all(slow)).toEqual([201, 201]);
  await soon(() => expect(service.worker(2).pid).not.toBe(victim.pid));
  expect(service.log()).toContainEqual(
    expect.objectContaining({ msg: 'a worker ended; another takes its place', worker: 2, pid: victim.pid, code: 0 }),
  );
});
