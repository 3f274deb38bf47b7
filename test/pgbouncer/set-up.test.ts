import { afterEach, beforeEach, expect, test } from 'vitest';
import { type PgBouncer, startPgBouncer } from '../../scripts/pgbouncer/pgbouncer.js';
import type { Pooler } from '../../src/config-variables.js';
import { openPool } from '../../src/database/database.js';
import { checkSession, INDEX_PLANS } from '../../src/database/session.js';
import { adminUrl, createTestDatabase, type TestDatabase } from '../support/database.js';
import { startServiceProcess } from '../support/service.js';

const STARTUP_PARAMETERS = 'options,lock_timeout,statement_timeout,idle_in_transaction_session_timeout';

// Set-ups as they go wrong: each has to be noticed at the start.
let database: TestDatabase;
let bouncer: PgBouncer;
const started: PgBouncer[] = [];
beforeEach(async () => {
  database = await createTestDatabase(null);
});
afterEach(async () => {
  await Promise.all(started.splice(0).map((one) => one.stop()));
  await database.drop();
});

async function start(options: Partial<Parameters<typeof startPgBouncer>[0]> = {}): Promise<void> {
  bouncer = await startPgBouncer({ server_url: adminUrl(), pool_size: 2, ...options });
  started.push(bouncer);
}

async function check(pooler: Pooler): Promise<string> {
  const pool = openPool(bouncer.through(database.direct_url), { pool_size: 2, settings: INDEX_PLANS, pooler });
  try {
    return await checkSession(pool, pooler).then(
      () => 'fine',
      (error: unknown) => String(error),
    );
  } finally {
    await pool.end();
  }
}

const remedyIn = (refusal: string): string => /Run: (.*;)/.exec(refusal)?.[1] ?? '';

test.each<[string, Record<string, string>]>([
  ['refuses', {}],
  ['swallows', { ignore_startup_parameters: STARTUP_PARAMETERS }],
])('a pooler that %s what it does not know, without a word to us: which word is missing', async (_name, ini) => {
  await start({ ini });
  expect(await check('none')).toMatch(/through a connection pooler .* Set DATABASE_POOLER=transaction/);
  expect(await check('transaction')).toBe('fine');
});

test('pooling by session, whose clean-up takes away what was set on the connection', async () => {
  await start({ ini: { pool_mode: 'session', ignore_startup_parameters: STARTUP_PARAMETERS } });
  expect(await check('none')).toMatch(/through a connection pooler/);
  await check('transaction-prepared');
  expect(await check('transaction-prepared')).toContain('enable_seqscan is on and has to be off');
  const direct = openPool(database.direct_url, { pool_size: 1 });
  await direct.query(remedyIn(await check('transaction-prepared')));
  await direct.end();
  await bouncer.console('RECONNECT');
  for (let round = 0; round < 2; round += 1) expect(await check('transaction-prepared')).toBe('fine');
});

test('sessions without our settings: refused until the role has them and the pooler new connections', async () => {
  await start({ settings: {} });
  const refusal = await check('transaction');
  expect(refusal).toMatch(/enable_seqscan is on .* lock_timeout is 0 .* Then RECONNECT/);
  const direct = openPool(database.direct_url, { pool_size: 1 });
  await direct.query(remedyIn(refusal));
  await direct.end();
  expect(await check('transaction'), 'a session from before').toBe(refusal);
  await bouncer.console('RECONNECT');
  expect(await check('transaction')).toBe('fine');
});

test('prepared statements that the pooler does not keep', async () => {
  await start();
  const [major = 0, minor = 0] = /(\d+)\.(\d+)/.exec(bouncer.version)?.slice(1).map(Number) ?? [];
  const can_keep = major > 1 || minor >= 21;
  if (can_keep) {
    expect(await check('transaction-prepared')).toBe('fine');
    await start({ ini: { max_prepared_statements: '0' } });
  }
  expect(await check('transaction-prepared')).toMatch(/does not keep prepared statements. Set max_prepared_statements/);
});

test('pooling by statement, which has no transactions', async () => {
  await start({ ini: { pool_mode: 'statement' } });
  expect(await check('transaction')).toContain('transaction blocks not allowed in statement pooling mode');
});

test('the service itself does not start, and says why in one line', async () => {
  await start();
  const env = { DATABASE_URL: bouncer.through(database.direct_url), PROVIDERS: 'instant' };
  const service = await startServiceProcess({ env, wait: false });
  expect(await service.ended).toBe(1);
  expect(service.output()).toMatch(/^oncepay: start failed: DATABASE_URL leads through a connection pooler.*$/m);
});
