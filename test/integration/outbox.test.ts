import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Database } from '../../src/database/database.js';
import { backlogReader } from '../../src/store/backlog.js';
import { claimShards, finishRound, readUnsent } from '../../src/store/outbox.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';

let own: TestDatabase;
let database: Database;
beforeEach(async () => {
  own = await createTestDatabase();
  database = own.open({ pool_size: 8, onError: () => undefined });
});
afterEach(async () => {
  await database.close();
  await own.drop();
});

const write = async (key: string, sequence: number, id: string = randomUUID()): Promise<string> => {
  await database.pool.query(
    `insert into outbox_event (id, topic, key, sequence, type, data) values ($1, 't', $2, $3, 'T.v1', '{}')`,
    [id, key, sequence],
  );
  return id;
};
const claim = (token: string, max_shards = 16, lease_ms = 60_000) =>
  claimShards(database.pool, { token, lease_ms, max_shards });
const finish = (token: string, more: Partial<Parameters<typeof finishRound>[1]> = {}) =>
  finishRound(database.pool, { token, sent: [], refused: [], max_attempts: 2, ...more });

describe('the outbox', () => {
  it('gives a shard to one relay at a time, and only shards with unsent events', async () => {
    expect(await claim(randomUUID())).toEqual([]);
    const keys = Array.from({ length: 40 }, (_, index) => `p-${index}`);
    for (const key of keys) await write(key, 1);
    const tokens = Array.from({ length: 8 }, () => randomUUID());
    const claimed = (await Promise.all(tokens.map((token) => claim(token, 4)))).flat();
    expect(new Set(claimed).size).toBe(claimed.length);
    const rows = await readUnsent(database.pool, claimed, 100);
    const rest = await readUnsent(database.pool, await claim(randomUUID()), 100);
    expect([...rows, ...rest].map(({ key }) => key).sort()).toEqual([...keys].sort());
    expect(await claim(randomUUID())).toEqual([]);
  });

  it('keeps all events of a key in one shard, whatever the slice', async () => {
    for (let sequence = 10; sequence >= 1; sequence -= 1) await write('p-1', sequence);
    const [shard, ...others] = await claim(randomUUID());
    expect(others).toEqual([]);
    const rows = await readUnsent(database.pool, [shard!], 4);
    expect(rows.map(({ sequence }) => sequence)).toEqual([1, 2, 3, 4]);
  });

  it('lets the lease of a dead relay run out, and its late marks count all the same', async () => {
    const id = await write('p-1', 1);
    const dead = randomUUID();
    const shards = await claim(dead, 16, 0);
    expect(shards).toHaveLength(1);
    const heir = randomUUID();
    expect(await claim(heir)).toEqual(shards);
    await finish(dead, { sent: [id] });
    expect(await readUnsent(database.pool, shards, 10)).toEqual([]);
    // The heir's lease is not the dead one's to give back.
    await write('p-1', 2);
    expect(await claim(randomUUID())).toEqual([]);
    await finish(heir);
    expect(await claim(randomUUID())).toEqual(shards);
  });

  it('counts refusals, quarantines at the last one, and never a row that was sent', async () => {
    const [id, sent] = [await write('p-1', 1), await write('p-2', 1)];
    const refused = [id, sent].map((row) => ({ id: row, error: 'too large' }));
    expect(await finish(randomUUID(), { sent: [sent] })).toEqual([]);
    expect(await finish(randomUUID(), { refused })).toEqual([]);
    expect(await finish(randomUUID(), { refused })).toEqual([id]);
    expect(await claim(randomUUID())).toEqual([]);
  });

  it('shows what waits in the gauges', async () => {
    for (let index = 0; index < 30; index += 1) await write(`p-${index}`, 1);
    await database.pool.query(`update outbox_event set created_at = now() - interval '90 seconds' where key = 'p-7'`);
    const { outbox_pending, outbox_quarantined } = await backlogReader(database.pool)();
    expect(outbox_pending.count).toBe(30);
    expect(Math.round(outbox_pending.oldest_age_s)).toBeGreaterThanOrEqual(90);
    expect(outbox_quarantined.count).toBe(0);
  });

  it('wakes nobody who has not asked for it', async () => {
    const listener = new pg.Client({ connectionString: own.direct_url });
    await listener.connect();
    const heard: string[] = [];
    listener.on('notification', ({ channel }) => heard.push(channel));
    try {
      await listener.query('listen oncepay_outbox');
      await write('p-1', 1);
      await database.pool.query('update outbox_wake set wanted = true');
      await write('p-1', 2);
      // Notifications arrive with the next answer at the latest.
      await listener.query('select 1');
      expect(heard).toEqual(['oncepay_outbox']);
    } finally {
      await listener.end();
    }
  });
});
