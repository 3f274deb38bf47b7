import type { IHeaders, KafkaMessage } from 'kafkajs';
import { isRefusal } from './client.js';
import type { UnreadableReason } from './cloud-events.js';
import type { OutgoingMessage, Publisher } from './publisher.js';
import { deadLetterTopic } from './topics.js';

/** Why a message is in a dead-letter topic: the header `dlq_reason`. */
export type DeadLetterReason =
  UnreadableReason | 'unknown_type' | 'unknown_version' | 'invalid_data' | 'contradiction' | 'keeps_failing';

/** A message that no repetition makes better. Thrown by handlers; the transaction is rolled back. */
export class Poison extends Error {
  override readonly name = 'Poison';
  constructor(
    readonly reason: DeadLetterReason,
    detail: string,
  ) {
    super(detail);
  }
}

export interface DeadLetter {
  readonly topic: string;
  readonly partition: number;
  readonly message: KafkaMessage;
  readonly consumer: string;
  readonly reason: DeadLetterReason;
  readonly detail: string;
  readonly attempts: number;
}

const PREFIX = 'dlq_';
const DETAIL_MAX_LENGTH = 500;

/**
 * Puts a message into its dead-letter topic: key, value and headers as they came, and why in headers of its own.
 * @throws what the publisher throws: then the message must not be acknowledged
 */
export async function sendDeadLetter(publisher: Pick<Publisher, 'send'>, letter: DeadLetter): Promise<void> {
  const outgoing = deadLetterMessage(letter);
  try {
    await publisher.send([outgoing]);
  } catch (error) {
    if (!isRefusal(error)) throw error;
    // It just fitted where it came from and does not with our headers. It is not lost there: topic, partition and
    // offset tell where it is.
    const headers = { ...outgoing.headers, [`${PREFIX}value_omitted`]: String(outgoing.value?.length ?? 0) };
    await publisher.send([{ ...outgoing, value: null, headers }]);
  }
}

function deadLetterMessage(letter: DeadLetter): OutgoingMessage {
  const { topic, partition, message, consumer, reason, detail, attempts } = letter;
  const why: IHeaders = {
    reason,
    detail: detail.slice(0, DETAIL_MAX_LENGTH),
    consumer,
    topic,
    partition: String(partition),
    offset: message.offset,
    attempts: String(attempts),
    at: new Date().toISOString(),
  };
  const headers = { ...withoutReasons(message.headers ?? {}) };
  for (const [name, value] of Object.entries(why)) headers[PREFIX + name] = value;
  return { topic: deadLetterTopic(topic), key: message.key, value: message.value, headers };
}

/** The headers that a message came with, before it was a dead letter. */
export function withoutReasons(headers: IHeaders): IHeaders {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !name.startsWith(PREFIX)));
}

export function omittedValue(headers: IHeaders): boolean {
  return `${PREFIX}value_omitted` in headers;
}
