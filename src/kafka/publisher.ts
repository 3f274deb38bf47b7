import type { Kafka, Message, Producer } from 'kafkajs';
import { Partitioners } from 'kafkajs';
import { KAFKA_LIMITS } from './client.js';

export interface OutgoingMessage extends Message {
  readonly topic: string;
}

/**
 * Sends with an idempotent producer and `acks=all`: what `send` resolves for is in the log of every in-sync replica,
 * once for each call.
 *
 * One send at a time, and a producer that has failed is never used again. After a send that failed in part (one
 * partition took its messages, another did not), kafkajs gives the next messages sequence numbers that the broker has
 * already seen, and the broker then acknowledges them without writing them. A new producer has an id of its own and
 * starts at zero (docs/adr/0040).
 */
export class Publisher {
  private producer: Promise<Producer> | null = null;
  private last: Promise<unknown> = Promise.resolve();

  constructor(private readonly kafka: Kafka) {}

  /**
   * @throws what kafkajs throws. The messages may be in the log all the same: sending them again writes them again, and
   * consumers know them by their id.
   */
  send(messages: readonly OutgoingMessage[]): Promise<void> {
    const sending = this.last.then(() => this.sendNow(messages));
    this.last = sending.catch(() => undefined);
    return sending;
  }

  /** Waits for the send under way. Usable again afterwards. */
  async close(): Promise<void> {
    await this.last;
    await this.discard();
  }

  private async sendNow(messages: readonly OutgoingMessage[]): Promise<void> {
    if (messages.length === 0) return;
    try {
      const producer = await (this.producer ??= this.connect());
      await producer.sendBatch({ acks: -1, timeout: KAFKA_LIMITS.request_ms, topicMessages: byTopic(messages) });
    } catch (error) {
      await this.discard();
      throw error;
    }
  }

  private async connect(): Promise<Producer> {
    const producer = this.kafka.producer({
      idempotent: true,
      maxInFlightRequests: 1,
      allowAutoTopicCreation: false,
      // Java's: other producers put the same key into the same partition.
      createPartitioner: Partitioners.DefaultPartitioner,
      retry: {
        retries: KAFKA_LIMITS.retries,
        initialRetryTime: KAFKA_LIMITS.retry_ms.initial,
        maxRetryTime: KAFKA_LIMITS.retry_ms.max,
      },
    });
    await producer.connect();
    return producer;
  }

  private async discard(): Promise<void> {
    const { producer } = this;
    this.producer = null;
    if (producer === null) return;
    try {
      await (await producer).disconnect();
    } catch {
      // It was broken, or never came up.
    }
  }
}

function byTopic(messages: readonly OutgoingMessage[]): { topic: string; messages: Message[] }[] {
  const topics = new Map<string, Message[]>();
  for (const { topic, ...message } of messages) {
    const list = topics.get(topic);
    if (list === undefined) topics.set(topic, [message]);
    else list.push(message);
  }
  return [...topics].map(([topic, list]) => ({ topic, messages: list }));
}
