import { randomUUID } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openPool } from '../../src/database/database.js';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/database/embedded/server.js';
import { migrate } from '../../src/database/migrate.js';
import { newCharge, type TestInstance, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';
import { addressOf } from '../support/database.js';
import { Relay } from '../support/relay.js';
import { soon } from '../support/soon.js';

// A server of its own, that can be stopped. It comes back at another port, so that the service reaches it by a relay.
let data_dir: string;
let server: EmbeddedPostgres;
let relay: Relay;
let system: TestSystem;
let instance: TestInstance;

async function startServer(): Promise<void> {
  server = await startEmbeddedPostgres({ data_dir, settings: { fsync: 'off', shared_buffers: '32MB' } });
}
const portOf = ({ url }: EmbeddedPostgres) => Number(new URL(url).port);

async function stopDatabase(): Promise<void> {
  await relay.close();
  await server.stop();
}

async function startDatabase(): Promise<void> {
  await startServer();
  await relay.reopen(portOf(server));
}

beforeAll(async () => {
  data_dir = mkdtempSync(join(tmpdir(), 'oncepay-outage-'));
  chmodSync(data_dir, 0o711);
  await startServer();
  relay = await Relay.open(portOf(server));
  const pool = openPool(server.url, { pool_size: 1 });
  await migrate(pool);
  await pool.end();
  system = await TestSystem.start({ address: addressOf(relay.urlFor(server.url)) });
  instance = system.first;
});
afterAll(async () => {
  try {
    await system.close(checkInvariants);
  } finally {
    // Nothing else ends it: it is in a session of its own.
    await relay.close();
    await server.stop();
    rmSync(data_dir, { recursive: true, force: true });
  }
});

/** Repeats a charge until the database is reached again. */
async function chargeAfterwards(body: ReturnType<typeof newCharge>, key: string) {
  const answer = await system.chargeUntilFinal(body, { key });
  expect(answer).toMatchObject({ status: 201, body: { status: 'succeeded' } });
  expect((await system.charge(body, { key }).expect(201)).text).toBe(answer.text);
  return answer;
}

describe('the database stops', () => {
  it('money routes and readiness answer 503, nothing gets to the provider, and afterwards all goes on', async () => {
    const before = newCharge();
    const made = await system.charge(before).expect(201);
    const jobs = instance.startJobs();
    await stopDatabase();

    const body = newCharge();
    const key = randomUUID();
    for (let n = 0; n < 3; n += 1) {
      const refused = await system.charge(body, { key }).expect(503);
      expect(refused.body.code).toBe('unavailable');
      expect(refused.headers['content-type']).toBe('application/problem+json; charset=utf-8');
      expect(Number(refused.headers['retry-after'])).toBeGreaterThanOrEqual(1);
    }
    await system.getPayment(made.body.id).expect(503);
    await request(instance.url).get('/health/ready').expect(503);
    await request(instance.url).get('/health/live').expect(200);
    expect(await system.calls(body.external_payment_id)).toEqual([]);

    await startDatabase();
    await soon(() => request(instance.url).get('/health/ready').expect(200));
    await chargeAfterwards(body, key);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    expect((await system.getPayment(made.body.id).expect(200)).body).toEqual(made.body);
    await jobs.stop();
  });

  it.each(['begun', 'answered'] as const)(
    'while a charge stands at "%s": 503, and its key finds the true outcome afterwards, one movement',
    async (step) => {
      const body = newCharge();
      const key = randomUUID();
      const held = instance.holdAt(step);
      const first = system.charge(body, { key }).then((answer) => answer);
      await held.reached;
      await stopDatabase();
      held.release();
      expect((await first).status).toBe(503);
      await startDatabase();
      await system.expireLease(key);
      await chargeAfterwards(body, key);
      expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    },
  );

  it('while 60 charges are under way: each moves once, whatever it was answered', async () => {
    const jobs = instance.startJobs();
    const charges = Array.from({ length: 60 }, () => ({ body: newCharge(), key: randomUUID() }));
    const sent = charges.map(({ body, key }) => system.charge(body, { key }).then((answer) => answer.status));
    await Promise.race(sent);
    await stopDatabase();
    const statuses = new Set(await Promise.all(sent));
    for (const status of statuses) expect([201, 503]).toContain(status);
    await startDatabase();
    await system.expireLeases('true');
    for (const { body, key } of charges) {
      await chargeAfterwards(body, key);
      expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    }
    await jobs.stop();
  });
});

describe('a statement is done, and its acknowledgement is lost', () => {
  // By the statements' names, which go over the wire with them.
  it.each(['reserve_and_begin_charge', 'reserve_look', 'settle'])(
    '%s: the charge goes on, and moves once',
    async (name) => {
      const body = newCharge();
      const key = randomUUID();
      if (name === 'reserve_look') await system.charge(body, { key }).expect(201);
      const lost = relay.loseAnswerTo(`${name}\0`);
      const answer = await system.charge(body, { key }).expect(201);
      await lost;
      expect(answer.body.status).toBe('succeeded');
      expect((await system.charge(body, { key }).expect(201)).text).toBe(answer.text);
      expect(await system.movements(body.external_payment_id)).toHaveLength(1);
      const { events, operations } = await system.rowsOf(body.external_payment_id);
      expect(events).toHaveLength(1);
      expect(operations).toHaveLength(1);
    },
  );

  it.each([
    ['a commit of what was paid again', 'operation_insert'],
    ['an attempt that starts', 'attempt_start'],
    ['a charge’s end, beside waiting keys', 'record_answer_waiting'],
  ])('%s: 503 or done, and the retry finds what is', async (_name, statement) => {
    const body = newCharge({ payment_method: 'pm_decline_card_declined' });
    await system.charge(body).expect(201);
    const again = { ...body, payment_method: 'pm_unavailable_once' };
    const key = randomUUID();
    const lost = relay.loseAnswerTo(`${statement}\0`);
    const first = await system.charge(again, { key });
    await lost;
    expect([201, 503]).toContain(first.status);
    // Nobody has to wait for the lease: what failed unexpectedly has ended it.
    expect((await system.charge(again, { key }).expect(201)).body.status).toBe('succeeded');
    await chargeAfterwards(again, key);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it.each([1, 2, 3])('COMMIT (the %i. of paying again): the retry finds what is', async (which) => {
    const body = newCharge({ payment_method: 'pm_decline_card_declined' });
    await system.charge(body).expect(201);
    const again = { ...body, payment_method: 'pm_success' };
    const key = randomUUID();
    const step = ([undefined, 'begun', 'answered'] as const)[which - 1];
    const held = step && instance.holdAt(step);
    const lostFirst = held ? undefined : relay.loseAnswerTo('COMMIT\0');
    const sent = system.charge(again, { key }).then((answer) => answer);
    await held?.reached;
    const lost = lostFirst ?? relay.loseAnswerTo('COMMIT\0');
    held?.release();
    await lost;
    expect([201, 202, 503]).toContain((await sent).status);
    await system.expireLease(key);
    const jobs = instance.startJobs();
    await chargeAfterwards(again, key);
    await jobs.stop();
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    const { operations } = await system.rowsOf(body.external_payment_id);
    expect(operations).toHaveLength(2);
  });
});
