import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { replayEvents } from '../../src/kafka/replay.js';
import { newBase, newKafka, newTopic, Reader, SOON, SOURCE, type TestBase, writeEvent } from './support.js';

let base: TestBase;
let topic: string;
let reader: Reader;

beforeEach(async () => {
  base = await newBase();
  topic = await newTopic('payments.events', 3);
  reader = await Reader.start(topic);
  base.add(() => reader.stop());
});
afterEach(() => base.end());

const stateOf = async (id: string) => {
  const { rows } = await base.database.pool.query<{
    published_at: Date | null;
    quarantined_at: Date | null;
    attempts: number;
    last_error: string | null;
  }>('select published_at, quarantined_at, attempts, last_error from outbox_event where id = $1', [id]);
  return rows[0]!;
};

describe('the relay', () => {
  it('publishes an event as a CloudEvent and marks it', async () => {
    base.relay().start();
    const id = await writeEvent(base.database.pool, { topic, key: 'p-1', sequence: 7, data: { payment_id: 'p-1' } });
    const [event] = await reader.until((received) => received.length === 1);
    expect(event).toMatchObject({
      key: 'p-1',
      value: '{"payment_id":"p-1"}',
      headers: {
        ce_specversion: '1.0',
        ce_id: id,
        ce_type: 'PaymentSucceeded.v1',
        ce_source: SOURCE,
        ce_subject: 'p-1',
        ce_sequence: '0000000007',
        'content-type': 'application/json',
      },
    });
    expect(new Date(event!.headers.ce_time!).getTime()).toBeLessThanOrEqual(Date.now() + 1000);
    await vi.waitFor(async () => expect((await stateOf(id)).published_at).not.toBeNull(), SOON);
  });

  it('publishes 1,000 changes of one payment in order, by two relays at once', async () => {
    const relays = [1, 2].map(() => base.relay({ limits: { rows_per_shard: 50 } }));
    for (const relay of relays) relay.start();
    for (let sequence = 1; sequence <= 1000; sequence += 1) {
      await writeEvent(base.database.pool, { topic, key: 'p-1', sequence });
      // Another payment's events are in between.
      if (sequence % 10 === 0) await writeEvent(base.database.pool, { topic, key: `q-${sequence}`, sequence: 1 });
    }
    await reader.until((received) => received.length >= 1100);
    const sequences = reader.of('p-1').map((event) => Number(event.headers.ce_sequence));
    expect(sequences).toEqual(Array.from({ length: 1000 }, (_, index) => index + 1));
  });

  it('sends by sequence where the ids say otherwise, as they do when clocks differ', async () => {
    const [early, late] = ['00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000002'];
    await writeEvent(base.database.pool, { id: late, topic, key: 'p-1', sequence: 1 });
    await writeEvent(base.database.pool, { id: early, topic, key: 'p-1', sequence: 2 });
    base.relay({ limits: { rows_per_shard: 1 } }).start();
    await reader.until((received) => received.length === 2);
    expect(reader.of('p-1').map((event) => event.headers.ce_id)).toEqual([late, early]);
  });

  it('misses nothing where a transaction with a lower id commits after one with a higher id', async () => {
    base.relay().start();
    const open = await base.database.pool.connect();
    const [lower, higher] = ['00000000-0000-7000-8000-00000000000a', '00000000-0000-7000-8000-00000000000b'];
    try {
      await open.query('begin');
      await writeEvent(open, { id: lower, topic, key: 'p-1', sequence: 1 });
      await writeEvent(base.database.pool, { id: higher, topic, key: 'p-2', sequence: 1 });
      await reader.until((received) => received.length === 1);
      expect(reader.received[0]!.headers.ce_id).toBe(higher);
      await open.query('commit');
    } finally {
      open.release();
    }
    await reader.until((received) => received.length === 2);
    expect(reader.received[1]!.headers.ce_id).toBe(lower);
  });

  it('quarantines what is too large and lets its neighbours and successors go on', async () => {
    const large = await writeEvent(base.database.pool, {
      topic,
      key: 'p-1',
      sequence: 2,
      data: { text: 'x'.repeat(2 * 1024 * 1024) },
    });
    await writeEvent(base.database.pool, { topic, key: 'p-1', sequence: 1 });
    await writeEvent(base.database.pool, { topic, key: 'p-1', sequence: 3 });
    for (let other = 0; other < 20; other += 1)
      await writeEvent(base.database.pool, { topic, key: `q-${other}`, sequence: 1 });
    base.relay().start();
    await reader.until((received) => new Set(received.map((event) => event.headers.ce_id)).size === 22);
    // The gap shows by the sequence.
    const sequences = reader.of('p-1').map((event) => Number(event.headers.ce_sequence));
    expect([...new Set(sequences)]).toEqual([1, 3]);
    const state = await stateOf(large);
    expect(state).toMatchObject({ published_at: null, attempts: 3 });
    expect(state.quarantined_at).not.toBeNull();
    expect(state.last_error).toMatch(/larger than the max message size/);
  });

  it('holds what comes after a refused event until that is quarantined', async () => {
    const sends: number[][] = [];
    const too_large = Object.assign(new Error('too large'), { type: 'MESSAGE_TOO_LARGE' });
    const publisher = {
      async send(messages: readonly { headers?: Record<string, unknown> }[]) {
        const sequences = messages.map((event) => Number(event.headers?.ce_sequence));
        sends.push(sequences);
        if (sequences.includes(2)) throw too_large;
      },
    };
    for (const sequence of [1, 2, 3]) await writeEvent(base.database.pool, { topic, key: 'p-1', sequence });
    base.relay({ publisher }).start();
    await vi.waitFor(async () => {
      const { rows } = await base.database.pool.query('select 1 from outbox_event where published_at is not null');
      expect(rows).toHaveLength(2);
    }, SOON);
    // All three at once, then singly; what waits comes when the third refusal has settled it.
    expect(sends).toEqual([[1, 2, 3], [1], [2], [2, 3], [2], [2, 3], [2], [3]]);
  });

  it('publishes the rest where one topic does not exist, and that once it does', async () => {
    const missing = `missing.${randomUUID()}`;
    await writeEvent(base.database.pool, { topic: missing, key: 'p-1', sequence: 1 });
    await writeEvent(base.database.pool, { topic, key: 'p-1', sequence: 2 });
    base.relay().start();
    await reader.until((received) => received.length === 1);
    const { rows } = await base.database.pool.query<{ attempts: number }>(
      'select attempts from outbox_event where topic = $1',
      [missing],
    );
    expect(rows[0]!.attempts).toBe(0);
    const admin = newKafka().admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic: missing, numPartitions: 1 }], waitForLeaders: true });
    await admin.disconnect();
    const late = await Reader.start(missing);
    base.add(() => late.stop());
    await late.until((received) => received.length === 1);
  });

  it('is woken by a notification where it sleeps, and asks for none while it has work', async () => {
    base.relay({ connection_string: base.direct_url }).start();
    const wanted = async (): Promise<boolean> => {
      const { rows } = await base.database.pool.query<{ wanted: boolean }>('select wanted from outbox_wake');
      return rows[0]!.wanted;
    };
    await vi.waitFor(async () => expect(await wanted()).toBe(true), SOON);
    await writeEvent(base.database.pool, { topic, key: 'p-1', sequence: 1 });
    await vi.waitFor(async () => expect(await wanted()).toBe(false), { timeout: 5_000, interval: 1 });
    await reader.until((received) => received.length === 1);
  });

  it('takes over the shards of a relay that died, when their lease is over', async () => {
    await writeEvent(base.database.pool, { topic, key: 'p-1', sequence: 1 });
    await base.database.pool.query(
      `update outbox_shard set lease_token = gen_random_uuid(), lease_until = clock_timestamp() + interval '1 second'`,
    );
    base.relay().start();
    const started = performance.now();
    await reader.until((received) => received.length === 1);
    expect(performance.now() - started).toBeGreaterThan(500);
  });

  it('replays a time range with the same ids, in order', async () => {
    const relay = base.relay();
    relay.start();
    const ids: string[] = [];
    for (let sequence = 1; sequence <= 5; sequence += 1) {
      ids.push(await writeEvent(base.database.pool, { topic, key: 'p-1', sequence }));
    }
    await writeEvent(base.database.pool, { topic, key: 'p-2', sequence: 1 });
    await vi.waitFor(async () => {
      const { rows } = await base.database.pool.query('select 1 from outbox_event where published_at is null');
      expect(rows).toEqual([]);
    }, SOON);
    await relay.stop();
    const dependencies = { pool: base.database.pool, publisher: base.publisher(), source: SOURCE };
    const range = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 60_000), topic, key: 'p-1' };
    expect(await replayEvents(dependencies, range)).toBe(5);
    await reader.until((received) => received.length === 11);
    expect(reader.of('p-1').map((event) => event.headers.ce_id)).toEqual([...ids, ...ids]);
    expect(await replayEvents(dependencies, { ...range, to: range.from })).toBe(0);
  });
});
