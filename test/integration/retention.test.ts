import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { dailyRound, nextDaily } from '../../src/jobs/daily.js';
import { sweep } from '../../src/jobs/retention.js';
import { createLogger } from '../../src/logger.js';
import { lockRetention } from '../../src/store/retention.js';
import { reserve } from '../../src/store/reserve.js';
import { LEASE_MS, reserveItem } from '../support/charges.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';

const DAY_MS = 24 * 60 * 60_000;
const MAIN = fileURLToPath(new URL('../../src/jobs/retention-main.ts', import.meta.url));

let database: TestDatabase;
let pool: pg.Pool;
beforeAll(async () => {
  database = await createTestDatabase();
  pool = database.openPool({ pool_size: 6 });
});
beforeEach(() => pool.query('truncate idempotency_record, processed_event, outbox_event'));
afterAll(async () => {
  await pool.end();
  await database.drop();
});

const deleted: [string, number][] = [];
const options = () => ({
  pool,
  logger: createLogger('silent'),
  idempotency_retention_ms: 3 * DAY_MS,
  processed_event_retention_ms: 7 * DAY_MS,
  countDeleted: (table: string, rows: number) => void deleted.push([table, rows]),
  rest: () => Promise.resolve(),
});

/** Records as they may stand, of the age that is given as an interval. */
async function records(
  prefix: string,
  count: number,
  state: 'done' | 'open' | 'in_progress',
  expired_since: string | null,
) {
  await pool.query(
    `insert into idempotency_record (client_id, key, kind, command_hash, state, lease_token, lease_until, payment_id, operation_id,
                                     success_status, http_status, body, expires_at, created_at)
     select 'default', $1 || n, 'charge', sha256('x'), $3, case when $3 = 'in_progress' then gen_random_uuid() end,
            case when $3 = 'in_progress' then clock_timestamp() - interval '1 year' end, gen_random_uuid(),
            ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 201,
            case when $3 = 'done' then 201 end, case when $3 = 'done' then '{}' end,
            case when $3 = 'done' then clock_timestamp() - $4::interval end, clock_timestamp() - interval '1 year'
     from generate_series(1, $2) n`,
    [prefix, count, state, expired_since],
  );
}

async function keys(): Promise<Record<string, number>> {
  const { rows } = await pool.query<{ prefix: string; count: number }>(
    `select split_part(key, '-', 1) as prefix, count(*)::int as count from idempotency_record group by 1`,
  );
  return Object.fromEntries(rows.map(({ prefix, count }) => [prefix, count]));
}

describe('a sweep', () => {
  it('deletes finished records past their retention, in batches, and never what is unfinished', async () => {
    await records('old-', 2_500, 'done', '1 second');
    await records('fresh-', 10, 'done', '-1 hour');
    await records('open-', 10, 'open', null);
    await records('running-', 10, 'in_progress', null);
    deleted.length = 0;
    expect(await sweep(options())).toMatchObject({ idempotency_record: 2_500 });
    expect(await keys()).toEqual({ fresh: 10, open: 10, running: 10 });
    const batches = deleted.filter(([table]) => table === 'idempotency_record').map(([, rows]) => rows);
    expect(batches).toHaveLength(13);
    expect(Math.max(...batches)).toBeLessThanOrEqual(200);
    expect(await sweep(options())).toMatchObject({ idempotency_record: 0 });
  });

  it('rests after each batch but the last, told how long that one took', async () => {
    await records('old-', 450, 'done', '1 second');
    const rests: number[] = [];
    await sweep({ ...options(), rest: async (batch_ms) => void rests.push(batch_ms) });
    expect(rests).toEqual([expect.any(Number), expect.any(Number)]);
    expect(Math.min(...rests)).toBeGreaterThan(0);
  });

  it('shows a reservation that nobody watches to the background job', async () => {
    await records('running-', 3, 'in_progress', null);
    await sweep(options());
    const { rows } = await pool.query(
      `select 1 from idempotency_record where key like 'running-%' and recover_at = lease_until`,
    );
    expect(rows).toHaveLength(3);
  });

  it('deletes processed events past theirs, and published outbox rows, never one that is not published', async () => {
    await pool.query(
      `insert into processed_event (consumer_name, event_id, processed_at)
       select 'c', 'old-' || n, clock_timestamp() - interval '8 days' from generate_series(1, 1200) n
       union all select 'c', 'fresh-' || n, clock_timestamp() - interval '6 days' from generate_series(1, 5) n`,
    );
    await pool.query(
      `insert into outbox_event (id, topic, key, sequence, type, data, created_at, published_at)
       select ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 't', 'k', n, 'x', '{}', clock_timestamp() - interval '9 days',
              case when n % 3 = 0 then null when n % 3 = 1 then clock_timestamp() - interval '8 days' else clock_timestamp() end
       from generate_series(1, 3000) n`,
    );
    expect(await sweep(options())).toEqual({ idempotency_record: 0, processed_event: 1_200, outbox_event: 1_000 });
    const left = await pool.query<{ published: boolean; count: number }>(
      `select published_at is not null as published, count(*)::int as count from outbox_event group by 1 order by 1`,
    );
    expect(left.rows).toEqual([
      { published: false, count: 1_000 },
      { published: true, count: 1_000 },
    ]);
    expect((await pool.query(`select event_id from processed_event where event_id like 'old%'`)).rows).toEqual([]);
  });

  it('is done by one instance at a time', async () => {
    await records('old-', 10, 'done', '1 second');
    const other = await pool.connect();
    await other.query('begin');
    expect(await lockRetention(other)).toBe(true);
    expect(await sweep(options())).toBeNull();
    expect(await keys()).toEqual({ old: 10 });
    await other.query('commit');
    other.release();
    expect(await sweep(options())).toMatchObject({ idempotency_record: 10 });
  });

  it('leaves a record that somebody is renewing right now, and takes it up later if nobody does', async () => {
    await records('old-', 3, 'done', '1 second');
    const other = await pool.connect();
    await other.query('begin');
    await other.query(`select 1 from idempotency_record where key = 'old-2' for no key update`);
    expect(await sweep(options())).toMatchObject({ idempotency_record: 2 });
    await other.query('rollback');
    other.release();
    expect(await sweep(options())).toMatchObject({ idempotency_record: 1 });
  });

  it('that is stopped ends after the batch under way', async () => {
    await records('old-', 2_500, 'done', '1 second');
    let batches = 0;
    const countDeleted = () => void (batches += 1);
    await sweep({ ...options(), countDeleted, isStopped: () => batches >= 1 });
    expect(await keys()).toEqual({ old: 2_300 });
  });

  it('beside requests for the very keys: each key is reserved once, and no reservation is swept away', async () => {
    await records('old-', 400, 'done', '1 second');
    const asking = Promise.all(
      Array.from({ length: 4 }, async () => {
        const won: string[] = [];
        for (let n = 1; n <= 400; n += 1) {
          const [result] = await reserve(pool, [reserveItem({ key: `old-${n}` })], LEASE_MS);
          if (result?.type === 'reserved') won.push(result.lease.key);
        }
        return won;
      }),
    );
    await vi.waitUntil(async () => (await sweep(options())) !== null);
    const won = (await asking).flat();
    expect(won).toHaveLength(400);
    expect(new Set(won).size).toBe(400);
    expect(await keys()).toEqual({ old: 400 });
  });
});

describe('its time', () => {
  it.each([
    ['2026-11-29T02:59:59.999Z', '2026-11-29T03:00:00.000Z'],
    ['2026-11-29T03:00:00.000Z', '2026-11-30T03:00:00.000Z'],
    ['2026-12-31T23:00:00.000Z', '2027-01-01T03:00:00.000Z'],
  ])('after %s is %s', (now, next) => {
    expect(nextDaily(new Date(now), 3).toISOString()).toBe(next);
  });
});

it('a sweep that fails is tried again at the next look, one that is done not before the next day', async () => {
  let now = new Date('2026-11-29T02:59:00Z');
  const work = vi.fn<() => Promise<void>>().mockRejectedValueOnce(new Error('no database')).mockResolvedValue();
  const round = dailyRound(3, work, () => now);
  await round();
  expect(work).not.toHaveBeenCalled();
  now = new Date('2026-11-29T03:00:30Z');
  await expect(round()).rejects.toThrow('no database');
  now = new Date('2026-11-29T03:04:30Z');
  await round();
  await round();
  expect(work).toHaveBeenCalledTimes(2);
  now = new Date('2026-11-30T03:00:00Z');
  await round();
  expect(work).toHaveBeenCalledTimes(3);
});

describe('npm run retention', () => {
  async function run(env: Record<string, string>, cwd?: string): Promise<{ code: number; output: string }> {
    const tsx = import.meta.resolve('tsx');
    const child = spawn(process.execPath, ['--import', tsx, MAIN], { cwd, env: { PATH: process.env.PATH, ...env } });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data: Buffer) => (output += data.toString()));
    const [code] = (await once(child, 'close')) as [number];
    return { code, output };
  }

  it('sweeps once and tells what it deleted; ends with 1 while another one is at it', async () => {
    await records('old-', 7, 'done', '1 second');
    const { env } = database;
    const other = await pool.connect();
    await other.query('begin');
    await lockRetention(other);
    expect(await run(env)).toMatchObject({ code: 1, output: expect.stringContaining('Another instance') as unknown });
    await other.query('commit');
    other.release();
    const swept = await run(env);
    expect(swept.output).toContain('Deleted 7 idempotency records');
    expect(swept.code).toBe(0);
    expect(await keys()).toEqual({});
  });

  it('works on the database that the service does: of .env, where the environment names none', async () => {
    await records('old-', 3, 'done', '1 second');
    const folder = mkdtempSync(join(tmpdir(), 'oncepay-env-'));
    writeFileSync(
      join(folder, '.env'),
      Object.entries(database.env)
        .map(([name, value]) => `${name}=${value}\n`)
        .join(''),
    );
    const swept = await run({}, folder);
    rmSync(folder, { recursive: true });
    expect(swept).toMatchObject({ code: 0, output: expect.stringContaining('Deleted 3 idempotency') as unknown });
  });
});
