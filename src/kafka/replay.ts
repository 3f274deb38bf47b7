import type { Kafka, KafkaMessage } from 'kafkajs';
import type pg from 'pg';
import type { Logger } from '../logger.js';
import { publishedIds, readEvents, type ReplayRange } from '../store/outbox.js';
import { encodeEvent, headerText } from './cloud-events.js';
import { omittedValue, withoutReasons } from './dead-letters.js';
import type { Publisher } from './publisher.js';
import { deadLetterTopic } from './topics.js';

const PAGE_ROWS = 200;

/**
 * Publishes again what was published of a time range: the same ids, in the order of each key. For consumers that have
 * lost something; those that have not know the ids.
 * @returns how many events
 */
export async function replayEvents(
  dependencies: { readonly pool: pg.Pool; readonly publisher: Pick<Publisher, 'send'>; readonly source: string },
  range: ReplayRange,
): Promise<number> {
  const ids = await publishedIds(dependencies.pool, range);
  let count = 0;
  for (let start = 0; start < ids.length; start += PAGE_ROWS) {
    const events = await readEvents(dependencies.pool, ids.slice(start, start + PAGE_ROWS));
    // A record batch must fit the topic's limit; an event that is larger than our slice goes alone, as it once did.
    for (const batch of bySize(events)) {
      await dependencies.publisher.send(batch.map((event) => encodeEvent(event, dependencies.source)));
    }
    count += events.length;
  }
  return count;
}

const BATCH_BYTES = 512 * 1024;

function bySize<T extends { readonly data: string }>(events: readonly T[]): T[][] {
  const batches: T[][] = [];
  let bytes = Infinity;
  for (const event of events) {
    const size = Buffer.byteLength(event.data);
    if (bytes + size > BATCH_BYTES) {
      batches.push([]);
      bytes = 0;
    }
    batches.at(-1)?.push(event);
    bytes += size;
  }
  return batches;
}

export interface DeadLetterReplay {
  readonly replayed: number;
  /** Of other reasons than asked for, or without their value. They are still there for a replay that asks for them. */
  readonly skipped: number;
}

/**
 * Puts the dead letters of a topic back into it, from where the last replay ended up to what is there now; what fails
 * again comes after that and is not taken up in the same run. An offset is committed only after its letter is back.
 * @param reasons only these; null: all. Each choice of reasons has a group of its own, and so its own place in the topic
 */
export async function replayDeadLetters(
  dependencies: { readonly kafka: Kafka; readonly publisher: Pick<Publisher, 'send'>; readonly logger: Logger },
  topic: string,
  reasons: ReadonlySet<string> | null,
): Promise<DeadLetterReplay> {
  const source = deadLetterTopic(topic);
  const group_id = ['oncepay-dlq-replay', topic, ...[...(reasons ?? [])].sort()].join('-');
  const ends = await unreadUpTo(dependencies.kafka, source, group_id);
  const result = { replayed: 0, skipped: 0 };
  if (ends.size === 0) return result;
  const consumer = dependencies.kafka.consumer({ groupId: group_id, allowAutoTopicCreation: false });
  try {
    await consumer.connect();
    await consumer.subscribe({ topics: [source], fromBeginning: true });
    await new Promise<void>((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
      const eachMessage = async ({
        partition,
        message,
      }: {
        partition: number;
        message: KafkaMessage;
      }): Promise<void> => {
        const end = ends.get(partition);
        if (end === undefined || BigInt(message.offset) >= end) return;
        result[(await putBack(dependencies.publisher, topic, message, reasons)) ? 'replayed' : 'skipped'] += 1;
        const next = BigInt(message.offset) + 1n;
        await consumer.commitOffsets([{ topic: source, partition, offset: next.toString() }]);
        if (next >= end) ends.delete(partition);
        if (ends.size === 0) resolve();
      };
      consumer.run({ autoCommit: false, eachMessage }).catch(reject);
    });
  } finally {
    await consumer.disconnect();
  }
  return result;
}

async function putBack(
  publisher: Pick<Publisher, 'send'>,
  topic: string,
  message: KafkaMessage,
  reasons: ReadonlySet<string> | null,
): Promise<boolean> {
  const headers = message.headers ?? {};
  const reason = headerText(headers, 'dlq_reason') ?? '';
  if (omittedValue(headers) || (reasons !== null && !reasons.has(reason))) return false;
  await publisher.send([{ topic, key: message.key, value: message.value, headers: withoutReasons(headers) }]);
  return true;
}

/** The partitions with something that was not replayed yet, and where each ends now. */
async function unreadUpTo(kafka: Kafka, topic: string, group_id: string): Promise<Map<number, bigint>> {
  const admin = kafka.admin();
  try {
    await admin.connect();
    const [committed] = await admin.fetchOffsets({ groupId: group_id, topics: [topic] });
    const ends = new Map<number, bigint>();
    for (const { partition, low, high } of await admin.fetchTopicOffsets(topic)) {
      const known = committed?.partitions.find((at) => at.partition === partition)?.offset ?? '-1';
      const from = BigInt(known) < BigInt(low) ? BigInt(low) : BigInt(known);
      if (from < BigInt(high)) ends.set(partition, BigInt(high));
    }
    return ends;
  } finally {
    await admin.disconnect();
  }
}
