import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { CloudEvent } from '../../src/kafka/cloud-events.js';
import type { EventConsumer, EventHandler } from '../../src/kafka/event-consumer.js';
import { Poison } from '../../src/kafka/dead-letters.js';
import { orderProjection } from '../../src/kafka/consumers/order-projection.js';
import { replayDeadLetters } from '../../src/kafka/replay.js';
import { deadLetterTopic } from '../../src/kafka/topics.js';
import { message, newBase, newKafka, newTopic, Reader, send, silent, SOON, type TestBase } from './support.js';

let base: TestBase;
beforeEach(async () => {
  base = await newBase();
});
afterEach(() => base.end());

const rows = async (text: string, values: unknown[] = []): Promise<unknown[]> =>
  (await base.database.pool.query(text, values)).rows;

function consumerOf(topic: string, handle: EventHandler, name = 'test-consumer'): EventConsumer {
  return { name, topic, other_types: 'dead_letter', handlers: { 'Thing.v1': handle } };
}

/** An effect that nothing but the mark keeps from happening twice. */
const EFFECT = `insert into outbox_event (id, topic, key, sequence, type, data) values ($1, 't', 'k', 1, 't', '{}')`;

const order = (order_id: string) => ({
  order_id,
  client_id: 'shop',
  customer_id: 'c-1',
  amount: '10.00',
  currency: 'EUR',
});

async function readDeadLetters(topic: string): Promise<Reader> {
  const reader = await Reader.start(deadLetterTopic(topic));
  base.add(() => reader.stop());
  return reader;
}

describe('a consumer', () => {
  it('has an effect once, however often an event comes', async () => {
    const topic = await newTopic('things', 3);
    const event = message('Thing.v1', {});
    const handle: EventHandler = async (tx) => {
      await tx.query(EFFECT, [randomUUID()]);
      return undefined;
    };
    await send(
      topic,
      [event, event, event].map((same, partition) => ({ ...same, partition })),
    );
    const other = message('Thing.v1', {});
    await send(
      topic,
      [event, other].map((sent) => ({ ...sent, partition: 0 })),
    );
    base.consumer(consumerOf(topic, handle), { limits: { partitions_at_once: 3 } }).start();
    await vi.waitFor(async () => expect(await rows('select 1 from processed_event')).toHaveLength(2), SOON);
    expect(await rows('select 1 from outbox_event')).toHaveLength(2);
  });

  it('sees what another consumer has seen too: the mark is per consumer', async () => {
    const topic = await newTopic('things');
    const seen: string[] = [];
    for (const name of ['one', 'two']) {
      const handle: EventHandler = async (_tx, event) => {
        seen.push(`${name} ${event.id}`);
        return undefined;
      };
      base.consumer(consumerOf(topic, handle, name), { group_prefix: `${topic}-` }).start();
    }
    const id = randomUUID();
    await send(topic, [message('Thing.v1', {}, { id })]);
    await vi.waitFor(() => expect(seen.sort()).toEqual([`one ${id}`, `two ${id}`]), SOON);
  });

  it('puts what it can not read among the dead letters, with the reason, and goes on', async () => {
    const topic = await newTopic('things');
    const dead = await readDeadLetters(topic);
    const good = message('Thing.v1', {});
    const headers = (changes: Record<string, string | undefined>) => {
      const all = { ...good.headers, ...changes };
      return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as Record<
        string,
        string
      >;
    };
    const bad: [string, { value: string | Buffer | null; headers: Record<string, string> }][] = [
      ['null_value', { value: null, headers: headers({}) }],
      ['broken_json', { value: '{"a":', headers: headers({}) }],
      ['broken_json', { value: '{"a":1,"a":2}', headers: headers({}) }],
      ['broken_json', { value: Buffer.from([0x22, 0xff, 0x22]), headers: headers({}) }],
      ['broken_json', { value: '[1]', headers: headers({}) }],
      ['wrong_ce_id', { value: '{}', headers: headers({ ce_id: 'x' }) }],
      ['wrong_ce_id', { value: '{}', headers: headers({ ce_id: undefined }) }],
      ['wrong_ce_type', { value: '{}', headers: headers({ ce_type: 'Thing' }) }],
      ['not_a_cloudevent', { value: '{}', headers: {} }],
      ['not_a_cloudevent', { value: '{}', headers: headers({ ce_specversion: '2.0' }) }],
      ['wrong_content_type', { value: '{}', headers: headers({ 'content-type': 'text/plain' }) }],
      ['unknown_type', { value: '{}', headers: headers({ ce_type: 'Other.v1' }) }],
      ['unknown_type', { value: '{}', headers: headers({ ce_type: 'constructor.v1' }) }],
      ['unknown_version', { value: '{}', headers: headers({ ce_type: 'Thing.v2' }) }],
    ];
    await send(topic, [...bad.map(([, sent]) => ({ key: 'k', ...sent })), good]);
    const seen: CloudEvent[] = [];
    base.consumer(consumerOf(topic, async (_tx, event) => void seen.push(event))).start();
    await vi.waitFor(() => expect(seen).toHaveLength(1), SOON);
    await dead.until((letters) => letters.length === bad.length);
    expect(dead.received.map((letter) => letter.headers.dlq_reason)).toEqual(bad.map(([reason]) => reason));
    expect(dead.received[0]).toMatchObject({
      key: 'k',
      value: null,
      headers: { dlq_topic: topic, dlq_partition: '0', dlq_offset: '0', dlq_consumer: 'test-consumer' },
    });
    expect(dead.received[1]!.value).toBe('{"a":');
  });

  it('leaves the types of others alone on a topic of facts, but not another version of its own', async () => {
    const topic = await newTopic('orders.events');
    const dead = await readDeadLetters(topic);
    const others = ['OrderShipped.v1', 'OrderCreated.v2'].map((type) => message(type, {}));
    await send(topic, [
      ...others,
      message('OrderCreated.v1', { order_id: 5 }),
      message('OrderCreated.v1', order('o-1')),
    ]);
    base.consumer({ ...orderProjection, topic }).start();
    await vi.waitFor(async () => expect(await rows('select 1 from order_projection')).toHaveLength(1), SOON);
    await dead.until((letters) => letters.length === 2);
    expect(dead.received.map(({ headers }) => [headers.ce_type, headers.dlq_reason])).toEqual([
      ['OrderCreated.v2', 'unknown_version'],
      ['OrderCreated.v1', 'invalid_data'],
    ]);
  });

  it('tries again with pauses, then buries what keeps failing; nothing of it stays', async () => {
    const topic = await newTopic('things');
    const dead = await readDeadLetters(topic);
    const tries: string[] = [];
    const handle: EventHandler = async (tx, event) => {
      tries.push(event.id);
      await tx.query(EFFECT, [randomUUID()]);
      if (event.data.works_at !== tries.filter((id) => id === event.id).length) throw new Error('not now');
      return undefined;
    };
    const [mended, broken, after] = [{ works_at: 3 }, { works_at: 0 }, { works_at: 1 }].map((data) =>
      message('Thing.v1', data),
    );
    await send(topic, [mended!, broken!, after!]);
    base.consumer(consumerOf(topic, handle), { limits: { max_attempts: 3 } }).start();
    await dead.until((letters) => letters.length === 1);
    await vi.waitFor(async () => expect(await rows('select 1 from processed_event')).toHaveLength(2), SOON);
    expect(tries).toHaveLength(7);
    expect(dead.received[0]!.headers).toMatchObject({
      ce_id: broken!.headers.ce_id,
      dlq_reason: 'keeps_failing',
      dlq_attempts: '3',
      dlq_detail: 'Error: not now',
    });
    expect(await rows('select 1 from outbox_event')).toHaveLength(2);
  });

  it('waits for a database that is away, however long, and buries nothing for it', async () => {
    const topic = await newTopic('things');
    let tries = 0;
    const away = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    const handle: EventHandler = async () => {
      tries += 1;
      if (tries < 5) throw away;
      return undefined;
    };
    await send(topic, [message('Thing.v1', {})]);
    base.consumer(consumerOf(topic, handle), { limits: { max_attempts: 2 } }).start();
    await vi.waitFor(async () => expect(await rows('select 1 from processed_event')).toHaveLength(1), SOON);
    expect(tries).toBe(5);
  });

  it('gives partitions up drained: nobody gets a message that another still works on', async () => {
    const topic = await newTopic('things', 4);
    const working = new Map<string, string>();
    const done: string[] = [];
    const both: string[] = [];
    const handleAs =
      (name: string): EventHandler =>
      async (tx, event) => {
        const other = working.get(event.id);
        if (other !== undefined) both.push(`${event.id}: ${other} and ${name}`);
        working.set(event.id, name);
        await tx.query('select pg_sleep(0.05)');
        working.delete(event.id);
        done.push(event.id);
        return undefined;
      };
    const messages = Array.from({ length: 200 }, (_, index) => ({ ...message('Thing.v1', {}), partition: index % 4 }));
    await send(topic, messages);
    const started: string[] = [];
    const joins = ['A', 'B', 'C'].map((name) =>
      base.consumer(consumerOf(topic, handleAs(name), 'drain'), {
        limits: { partitions_at_once: 4 },
        atCommitted: () => void started.push(name),
      }),
    );
    joins[0]!.start();
    await vi.waitFor(() => expect(started.length).toBeGreaterThan(10), SOON);
    joins[1]!.start();
    await vi.waitFor(() => expect(started).toContain('B'), SOON);
    joins[2]!.start();
    const left = joins[1]!.stop();
    await vi.waitFor(() => expect(new Set(done).size).toBe(200), SOON);
    await left;
    expect(both).toEqual([]);
    expect(done).toHaveLength(200);
    expect(await rows('select 1 from processed_event')).toHaveLength(200);
  });

  it('goes on where it was after it was stopped', async () => {
    const topic = await newTopic('things');
    const seen: string[] = [];
    const handle: EventHandler = async (_tx, event) => void seen.push(event.id);
    const [first, second] = [message('Thing.v1', {}), message('Thing.v1', {})];
    await send(topic, [first]);
    const consumer = base.consumer(consumerOf(topic, handle));
    consumer.start();
    await vi.waitFor(() => expect(seen).toHaveLength(1), SOON);
    await consumer.stop();
    await send(topic, [second]);
    // Without the mark it would show if the first came again.
    await base.database.pool.query('delete from processed_event');
    base.consumer(consumerOf(topic, handle)).start();
    await vi.waitFor(() => expect(seen).toHaveLength(2), SOON);
    expect(seen).toEqual([first.headers.ce_id, second.headers.ce_id]);
  });
});

describe('the replay of dead letters', () => {
  it('puts them back, each once, and they are processed then', async () => {
    const topic = await newTopic('things', 2);
    const dead = await readDeadLetters(topic);
    let mended = false;
    const seen: string[] = [];
    const handle: EventHandler = async (_tx, event) => {
      if (!mended) throw new Poison('invalid_data', 'not yet');
      seen.push(event.id);
      return undefined;
    };
    const events = [message('Thing.v1', { a: 1 }), message('Thing.v1', { b: 2 }, { key: 'other' })];
    await send(topic, [...events, message('Other.v1', {})]);
    base.consumer(consumerOf(topic, handle)).start();
    await dead.until((letters) => letters.length === 3);
    mended = true;
    const dependencies = { kafka: newKafka(), publisher: base.publisher(), logger: silent };
    const reasons = new Set(['invalid_data']);
    expect(await replayDeadLetters(dependencies, topic, reasons)).toEqual({ replayed: 2, skipped: 1 });
    await vi.waitFor(() => expect(seen.sort()).toEqual(events.map(({ headers }) => headers.ce_id).sort()), SOON);
    expect(await replayDeadLetters(dependencies, topic, reasons)).toEqual({ replayed: 0, skipped: 0 });
    // The third is still there for whoever asks for it, and ends where it was.
    expect(await replayDeadLetters(dependencies, topic, new Set(['unknown_type']))).toEqual({
      replayed: 1,
      skipped: 2,
    });
    await dead.until((letters) => letters.length === 4);
    expect(dead.received[3]!.headers.dlq_reason).toBe('unknown_type');
  });
});
