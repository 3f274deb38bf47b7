import { randomUUID } from 'node:crypto';
import { type IHeaders, Kafka, logLevel } from 'kafkajs';
import { Registry } from 'prom-client';
import { inject, vi } from 'vitest';
import type { Database } from '../../src/database/database.js';
import type { Pooler } from '../../src/config-variables.js';
import { encodeEvent } from '../../src/kafka/cloud-events.js';
import { type ConsumerOptions, ConsumerRunner } from '../../src/kafka/consumer.js';
import type { EventConsumer } from '../../src/kafka/event-consumer.js';
import { createConsumerMetrics } from '../../src/kafka/metrics.js';
import { Publisher } from '../../src/kafka/publisher.js';
import { Relay, type RelayOptions } from '../../src/kafka/relay.js';
import { deadLetterTopic } from '../../src/kafka/topics.js';
import { createLogger } from '../../src/logger.js';
import { createTestDatabase } from '../support/database.js';

// A broker, child processes and rebalances on a machine that others use too: what is waited for may take its time.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

export const SOURCE = 'urn:oncepay:test';
export const SOON = { timeout: 30_000, interval: 20 };
export const silent = createLogger('silent');

export function brokers(): string[] {
  return inject('kafka_brokers').split(',');
}

export function newKafka(addresses = brokers()): Kafka {
  return new Kafka({ clientId: 'test', brokers: addresses, logLevel: logLevel.NOTHING });
}

/** A topic of the test's own, with its dead letters: the broker is shared by all tests. */
export async function newTopic(name: string, partitions = 1, kafka = newKafka()): Promise<string> {
  const topic = `${name}.${randomUUID()}`;
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({
    topics: [topic, deadLetterTopic(topic)].map((made) => ({ topic: made, numPartitions: partitions })),
    waitForLeaders: true,
  });
  await admin.disconnect();
  return topic;
}

export interface Received {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  readonly key: string;
  readonly value: string | null;
  readonly headers: Readonly<Record<string, string>>;
}

/** Reads a topic from its beginning, by a group of its own. */
export class Reader {
  readonly received: Received[] = [];
  private constructor(private readonly consumer: ReturnType<Kafka['consumer']>) {}

  static async start(topic: string, kafka = newKafka()): Promise<Reader> {
    const consumer = kafka.consumer({ groupId: `reader-${randomUUID()}`, maxWaitTimeInMs: 100 });
    const reader = new Reader(consumer);
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ partition, message }) => {
        reader.received.push({
          topic,
          partition,
          offset: BigInt(message.offset),
          key: message.key?.toString() ?? '',
          value: message.value?.toString() ?? null,
          headers: Object.fromEntries(
            Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)]),
          ),
        });
      },
    });
    return reader;
  }

  /** The events of a key, in the order in which they came. */
  of(key: string): Received[] {
    return this.received.filter((message) => message.key === key);
  }

  async until(check: (received: readonly Received[]) => boolean): Promise<readonly Received[]> {
    return vi.waitFor(() => {
      if (!check(this.received)) throw new Error(`not yet: ${this.received.length} messages`);
      return this.received;
    }, SOON);
  }

  stop(): Promise<void> {
    return this.consumer.disconnect();
  }
}

export interface TestBase {
  readonly database: Database;
  /** For a process of its own. */
  readonly address: { readonly url: string; readonly pooler: Pooler };
  readonly direct_url: string;
  /** Ends everything that was added, last first, and drops the database. */
  end(): Promise<void>;
  add(close: () => Promise<unknown>): void;
  relay(options?: Partial<RelayOptions>): Relay;
  consumer(consumer: EventConsumer, options?: Partial<ConsumerOptions>): ConsumerRunner;
  publisher(): Publisher;
}

export async function newBase(kafka = newKafka()): Promise<TestBase> {
  const own = await createTestDatabase();
  const database = own.open({ pool_size: 8, onError: () => undefined });
  const closers: (() => Promise<unknown>)[] = [];
  const metrics = createConsumerMetrics(new Registry());
  const base: TestBase = {
    database,
    address: { url: own.url, pooler: own.pooler },
    direct_url: own.direct_url,
    add: (close) => void closers.push(close),
    async end() {
      for (let close = closers.pop(); close !== undefined; close = closers.pop()) await close();
      await database.close();
      await own.drop();
    },
    publisher() {
      const publisher = new Publisher(kafka);
      closers.push(() => publisher.close());
      return publisher;
    },
    relay(options = {}) {
      const relay = new Relay({
        pool: database.pool,
        connection_string: database.listen_url,
        source: SOURCE,
        publisher: options.publisher ?? base.publisher(),
        logger: silent,
        metrics: { countOutbox: () => undefined },
        ...options,
      });
      closers.push(() => relay.stop());
      return relay;
    },
    consumer(consumer, options = {}) {
      const runner = new ConsumerRunner(consumer, {
        kafka,
        pool: database.pool,
        publisher: options.publisher ?? base.publisher(),
        metrics,
        logger: silent,
        group_prefix: `${consumer.topic}-`,
        ...options,
      });
      closers.push(() => runner.stop());
      return runner;
    },
  };
  return base;
}

export interface NewEvent {
  readonly id?: string;
  readonly topic: string;
  readonly key: string;
  readonly sequence: number;
  readonly data?: object;
}

/** Writes an outbox row as the use cases do. @returns its id */
export async function writeEvent(
  connection: Pick<Database['pool'], 'query'>,
  { id = randomUUID(), topic, key, sequence, data = {} }: NewEvent,
): Promise<string> {
  await connection.query(
    `insert into outbox_event (id, topic, key, sequence, type, data) values ($1, $2, $3, $4, 'PaymentSucceeded.v1', $5)`,
    [id, topic, key, sequence, JSON.stringify(data)],
  );
  return id;
}

/** A message as another service would send it. */
export function message(type: string, data: object, options: { readonly id?: string; readonly key?: string } = {}) {
  const { id = randomUUID(), key = 'key' } = options;
  const row = { id, topic: '', key, sequence: 1, type, data: JSON.stringify(data), traceparent: null };
  const { topic: _topic, ...sent } = encodeEvent({ ...row, attempts: 0, created_at: new Date() }, 'urn:test:shop');
  return sent as { key: string; value: string; headers: IHeaders };
}

/** Sends messages in this order. */
export async function send(
  topic: string,
  messages: readonly { key: string | null; value: string | Buffer | null; headers?: IHeaders; partition?: number }[],
): Promise<void> {
  const producer = newKafka().producer({ allowAutoTopicCreation: false });
  await producer.connect();
  await producer.send({ topic, messages: [...messages] });
  await producer.disconnect();
}
