import { randomUUID } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import request from 'supertest';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PgBouncer, startPgBouncer } from '../../scripts/pgbouncer/pgbouncer.js';
import { openPool } from '../../src/database/database.js';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/database/embedded/server.js';
import { migrate } from '../../src/database/migrate.js';
import { newCharge, TestSystem } from '../support/app.js';
import { addressOf } from '../support/database.js';
import { checkInvariants } from '../support/invariants.js';
import { Relay } from '../support/relay.js';
import { soon } from '../support/soon.js';

// The pooler, or what is behind it, goes away. PostgreSQL comes back at another port, hence the relay behind the pooler.
let data_dir: string;
let server: EmbeddedPostgres;
let relay: Relay;
let bouncer: PgBouncer;
let system: TestSystem;

async function startServer(): Promise<void> {
  server = await startEmbeddedPostgres({ data_dir, settings: { fsync: 'off', shared_buffers: '32MB' } });
}

async function startPooler(port?: number): Promise<void> {
  const server_url = relay.urlFor(server.url);
  // As docs/pgbouncer.md has it: by default a server that is back is not tried for 15 s.
  bouncer = await startPgBouncer({
    server_url,
    pool_size: 4,
    ...(port === undefined ? {} : { port }),
    ini: { server_login_retry: '1' },
  });
}

const portOf = ({ url }: EmbeddedPostgres) => Number(new URL(url).port);

const OUTAGES = {
  'the pooler': {
    begin: () => bouncer.stop(),
    end: () => startPooler(bouncer.port),
  },
  'the database behind it': {
    begin: async () => {
      await relay.close();
      await server.stop();
    },
    end: async () => {
      await startServer();
      await relay.reopen(portOf(server));
    },
  },
};

beforeAll(async () => {
  data_dir = mkdtempSync(join(tmpdir(), 'oncepay-pooled-'));
  chmodSync(data_dir, 0o711);
  await startServer();
  relay = await Relay.open(portOf(server));
  await startPooler();
  const pool = openPool(server.url, { pool_size: 1 });
  await migrate(pool);
  await pool.end();
  const through = { port: bouncer.port, pooler: 'transaction' } as const;
  system = await TestSystem.start({ address: addressOf(server.url, through) });
});
afterAll(async () => {
  try {
    await system.close(checkInvariants);
  } finally {
    await bouncer.stop();
    await relay.close();
    // Nothing else ends it: it is in a session of its own.
    await server.stop();
    rmSync(data_dir, { recursive: true, force: true });
  }
});

it.each(Object.entries(OUTAGES))('%s is away: 503, and nothing gets to the provider', async (_name, outage) => {
  const body = newCharge();
  const key = randomUUID();
  await system.charge(newCharge()).expect(201);
  await outage.begin();
  const refused = await system.charge(body, { key }).expect(503);
  expect(refused.body.code).toBe('unavailable');
  await request(system.first.url).get('/health/ready').expect(503);
  expect(await system.calls(body.external_payment_id)).toEqual([]);
  await outage.end();
  await soon(() => request(system.first.url).get('/health/ready').expect(200));
  expect((await system.chargeUntilFinal(body, { key })).body.status).toBe('succeeded');
  expect(await system.movements(body.external_payment_id)).toHaveLength(1);
});

it.each(Object.entries(OUTAGES))('%s goes away under 60 charges: each moves once', async (_name, outage) => {
  const jobs = system.first.startJobs();
  const charges = Array.from({ length: 60 }, () => ({ body: newCharge(), key: randomUUID() }));
  const sent = charges.map(({ body, key }) => system.charge(body, { key }).then((answer) => answer.status));
  await Promise.race(sent);
  await outage.begin();
  for (const status of new Set(await Promise.all(sent))) expect([201, 503]).toContain(status);
  await outage.end();
  await soon(() =>
    system.query(`update idempotency_record set lease_until = clock_timestamp() where state = 'in_progress'`),
  );
  for (const { body, key } of charges) {
    const answer = await system.chargeUntilFinal(body, { key });
    expect(answer).toMatchObject({ status: 201, body: { status: 'succeeded' } });
    expect((await system.charge(body, { key }).expect(201)).text).toBe(answer.text);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  }
  await jobs.stop();
});

it('is reached by few sessions, and nobody listens through the pooler', async () => {
  await Promise.all(Array.from({ length: 20 }, () => system.charge(newCharge()).expect(201)));
  const direct = openPool(server.url, { pool_size: 1 });
  const sessions = await direct.query(
    `select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
  );
  await direct.end();
  expect(sessions.rowCount).toBeLessThanOrEqual(4);
  const clients = await bouncer.console('SHOW CLIENTS');
  const names = clients.filter(({ database }) => database !== 'pgbouncer').map((client) => client.application_name);
  expect(new Set(names)).toEqual(new Set(['oncepay']));
});
