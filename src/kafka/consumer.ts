import type { Consumer, EachBatchPayload, Kafka } from 'kafkajs';
import { KAFKA_LIMITS } from './client.js';
import type { EventConsumer } from './event-consumer.js';
import { MESSAGE_LIMITS, MessageWorker, type MessageWorkerOptions } from './message-worker.js';
import { backoff_ms, pause } from './wait.js';

export interface ConsumerOptions extends MessageWorkerOptions {
  readonly kafka: Kafka;
  /** Before the name; tests use one of their own. */
  readonly group_prefix?: string;
  /** Makes the topics where they are missing. Called before each attempt to subscribe. */
  readonly prepare?: () => Promise<void>;
  readonly limits?: Partial<Record<'session_ms' | 'max_attempts' | 'partitions_at_once', number>>;
}

const CONSUMER_LIMITS = {
  /** Each holds a connection of the pool while it works, which HTTP needs too. */
  partitions_at_once: 2,
  /** Offsets are committed after so many messages or so long; after a crash that much comes again, and finds its marks. */
  commit_messages: 100,
  commit_interval_ms: 1_000,
  /** How much one read brings of a partition, before the rest of a rebalance waits for it. */
  fetch_bytes_per_partition: 256 * 1024,
  fetch_wait_ms: 500,
  /** Between a breakdown and the next start. */
  backoff: { first_ms: 100, max_ms: 5_000 },
} as const;

/**
 * Runs a consumer until it is stopped: connects whenever the brokers can be reached, and starts again after whatever
 * kafkajs does not get over by itself.
 *
 * A message's effect is committed before its offset, so nothing is lost; the mark makes a second delivery do nothing. At
 * a rebalance kafkajs waits for all messages that are being worked on before it joins again, and commits what is done:
 * partitions are given up drained (docs/adr/0040).
 */
export class ConsumerRunner {
  private readonly stopping = new AbortController();
  private readonly limits: { session_ms: number; partitions_at_once: number };
  private readonly worker: MessageWorker;
  private running: Promise<void> | null = null;

  constructor(
    private readonly consumes: EventConsumer,
    private readonly options: ConsumerOptions,
  ) {
    this.limits = { ...CONSUMER_LIMITS, session_ms: KAFKA_LIMITS.session_ms, ...options.limits };
    const max_attempts = options.limits?.max_attempts ?? MESSAGE_LIMITS.max_attempts;
    this.worker = new MessageWorker(consumes, options, max_attempts, this.stopping.signal);
  }

  start(): void {
    this.running ??= this.run();
  }

  /** Ends after the messages that are being worked on; commits their offsets and leaves the group. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await this.running;
  }

  private isStopping(): boolean {
    return this.stopping.signal.aborted;
  }

  private async run(): Promise<void> {
    for (let failures = 0; !this.isStopping(); failures += 1) {
      try {
        await this.consumeUntilBroken(() => (failures = 0));
      } catch (error) {
        const { name, topic } = this.consumes;
        const level = failures === 0 ? 'warn' : 'debug';
        this.options.logger[level]({ err: error, consumer: name, topic }, 'consumer: interrupted, starting again');
      }
      await pause(backoff_ms(failures + 1, CONSUMER_LIMITS.backoff), this.stopping.signal);
    }
  }

  /** Resolves when it was stopped; throws when the consumer has broken down. */
  private async consumeUntilBroken(onRunning: () => void): Promise<void> {
    const consumer = this.newConsumer();
    try {
      const broken = breakdownOf(consumer);
      await this.options.prepare?.();
      await consumer.connect();
      await consumer.subscribe({ topics: [this.consumes.topic], fromBeginning: true });
      await consumer.run({
        autoCommit: true, // of what was resolved, and never anything else
        autoCommitThreshold: CONSUMER_LIMITS.commit_messages,
        autoCommitInterval: CONSUMER_LIMITS.commit_interval_ms,
        eachBatchAutoResolve: false,
        partitionsConsumedConcurrently: this.limits.partitions_at_once,
        eachBatch: (payload) => this.workOff(payload),
      });
      onRunning();
      await Promise.race([broken, this.stopped()]);
    } finally {
      this.options.metrics.forgetLag(this.consumes.name);
      await consumer.disconnect().catch(() => undefined);
    }
  }

  private newConsumer(): Consumer {
    const { session_ms } = this.limits;
    const consumer = this.options.kafka.consumer({
      groupId: `${this.options.group_prefix ?? 'oncepay-'}${this.consumes.name}`,
      sessionTimeout: session_ms,
      heartbeatInterval: Math.min(KAFKA_LIMITS.heartbeat_ms, session_ms / 3),
      rebalanceTimeout: KAFKA_LIMITS.rebalance_ms,
      allowAutoTopicCreation: false,
      maxBytesPerPartition: CONSUMER_LIMITS.fetch_bytes_per_partition,
      maxWaitTimeInMs: CONSUMER_LIMITS.fetch_wait_ms,
    });
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      this.options.metrics.forgetLag(this.consumes.name);
      const { name } = this.consumes;
      this.options.logger.debug(
        { consumer: name, assignment: payload.memberAssignment },
        'consumer: partitions assigned',
      );
    });
    return consumer;
  }

  private async workOff(payload: EachBatchPayload): Promise<void> {
    const { topic, partition, highWatermark, messages } = payload.batch;
    const heartbeat = (): Promise<void> => payload.heartbeat();
    for (const message of messages) {
      if (this.isStopping() || !payload.isRunning() || payload.isStale()) return;
      const fate = await this.worker.workOff({ topic, partition, message }, heartbeat);
      if (fate === 'dropped') return;
      payload.resolveOffset(message.offset);
      const lag = BigInt(highWatermark) - BigInt(message.offset) - 1n;
      this.options.metrics.setLag(this.consumes.name, topic, partition, Number(lag));
      await heartbeat();
      await payload.commitOffsetsIfNecessary();
    }
  }

  private stopped(): Promise<void> {
    return new Promise((resolve) => {
      if (this.isStopping()) resolve();
      this.stopping.signal.addEventListener('abort', () => resolve(), { once: true });
    });
  }
}

/** Rejects when kafkajs gives up; it gets over most things by itself. */
function breakdownOf(consumer: Consumer): Promise<never> {
  const broken = new Promise<never>((_resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) reject(payload.error);
    });
  });
  broken.catch(() => undefined); // it may happen before anybody waits for it
  return broken;
}
