import { randomUUID } from 'node:crypto';
import request, { type Response } from 'supertest';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type pg from 'pg';
import { INSTALLATION_ID, newCharge, referencesOf } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { type ServiceProcess, startServiceProcess } from '../support/service.js';
import { type SimulatorProcess, startSimulatorProcess } from '../support/simulator.js';
import { soon } from '../support/soon.js';

// Two services as they really run: what two instances in one process would share by accident, they do not.
let database: TestDatabase;
let pool: pg.Pool;
let simulator: SimulatorProcess;
let services: ServiceProcess[];

beforeAll(async () => {
  [database, simulator] = await Promise.all([createTestDatabase(), startSimulatorProcess()]);
  pool = database.openPool({ pool_size: 2 });
  const env = {
    ...database.env,
    INSTALLATION_ID,
    SANDBOX_URL: simulator.url,
    SANDBOX_WEBHOOK_SECRETS: simulator.webhook_secret,
    RECOVERY_INTERVAL_MS: '100',
    RECONCILE_INTERVAL_MS: '100',
    LOG_LEVEL: 'warn',
  };
  // At once: they also race to migrate, to make the installation's id and the first client.
  services = await Promise.all([startServiceProcess({ env }), startServiceProcess({ env })]);
}, 60_000);
afterAll(async () => {
  await Promise.all(services.map((service) => service.stop()));
  await simulator.stop();
  await pool.end();
  await database.drop();
});

function charge(n: number, body: object, key: string, prefer?: string): request.Test {
  const { url, api_key } = services[n % 2]!;
  const sent = request(url).post('/payments').set('authorization', `Bearer ${api_key}`).set('idempotency-key', key);
  if (prefer !== undefined) void sent.set('prefer', prefer);
  return sent.send(body);
}

function crowd(count: number, send: (n: number) => request.Test): Promise<Response[]> {
  return Promise.all(Array.from({ length: count }, (_, n) => send(n).then((answer) => answer)));
}

async function movements(external_payment_id: string) {
  const references = referencesOf(external_payment_id);
  return (await simulator.movements()).filter(({ reference }) => references.has(reference ?? ''));
}

it('50 parallel identical requests charge once; every answer is 201 with the same bytes, or 409 in progress', async () => {
  const body = newCharge({ payment_method: 'pm_slow_answer_200' });
  const key = randomUUID();
  const answers = await crowd(50, (n) => charge(n, body, key));
  const made = answers.filter(({ status }) => status === 201);
  expect(made.length).toBeGreaterThan(0);
  expect(new Set(made.map(({ text }) => text)).size).toBe(1);
  for (const answer of answers.filter(({ status }) => status !== 201)) {
    expect(answer).toMatchObject({ status: 409, body: { code: 'idempotency_key_in_progress' } });
  }
  expect(await movements(body.external_payment_id)).toHaveLength(1);
  const { rows } = await pool.query('select 1 from payment where external_payment_id = $1', [body.external_payment_id]);
  expect(rows).toHaveLength(1);
});

it('with Prefer: wait=10 all 50 are 201', async () => {
  const body = newCharge({ payment_method: 'pm_slow_answer_200' });
  const key = randomUUID();
  const answers = await crowd(50, (n) => charge(n, body, key, 'wait=10'));
  expect([...new Set(answers.map(({ status }) => status))]).toEqual([201]);
  expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
  expect(await movements(body.external_payment_id)).toHaveLength(1);
});

it('20 keys for one external id: all 2xx, one payment, one movement, one outcome', async () => {
  const body = newCharge({ payment_method: 'pm_slow_answer_100' });
  const keys = Array.from({ length: 20 }, () => randomUUID());
  const answers = await crowd(20, (n) => charge(n, body, keys[n]!));
  for (const { status } of answers) expect([200, 201, 202]).toContain(status);
  expect(new Set(answers.map((answer) => answer.body.id)).size).toBe(1);
  const again = await crowd(20, (n) => charge(n + 1, body, keys[n]!));
  expect(new Set(again.map(({ text }) => text)).size).toBe(1);
  expect(again[0]!.body.status).toBe('succeeded');
  expect(await movements(body.external_payment_id)).toHaveLength(1);
});

it('one process is killed in the middle of 40 charges: the other finishes them, each moves once', async () => {
  const [victim] = services as [ServiceProcess, ServiceProcess];
  const charges = Array.from({ length: 40 }, () => ({
    body: newCharge({ payment_method: 'pm_slow_answer_300' }),
    key: randomUUID(),
  }));
  const sent = charges.map(({ body, key }, n) =>
    charge(n, body, key).then(
      ({ status }) => status,
      () => 'no answer',
    ),
  );
  await soon(async () => expect((await simulator.movements()).length).toBeGreaterThan(23), { interval: 5 });
  await victim.kill();
  const statuses = await Promise.all(sent);
  expect(statuses.filter((status) => status === 'no answer').length).toBeGreaterThan(0);

  // A lease may have many seconds to go; nobody waits for it here.
  await pool.query(`update idempotency_record set lease_until = clock_timestamp() where state = 'in_progress'`);
  for (const { body, key } of charges) {
    await soon(
      async () => {
        const answer = await charge(1, body, key);
        expect(answer).toMatchObject({ status: 201, body: { status: 'succeeded' } });
      },
      { interval: 50 },
    );
    expect(await movements(body.external_payment_id)).toHaveLength(1);
  }
});
