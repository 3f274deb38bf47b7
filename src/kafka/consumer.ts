import type { Consumer, EachBatchPayload, Kafka, KafkaMessage } from 'kafkajs';
import type pg from 'pg';
import { isUnavailable } from '../database/errors.js';
import { inTransaction, sqlState } from '../database/transaction.js';
import type { Logger } from '../logger.js';
import { markProcessed } from '../store/processed-event.js';
import { KAFKA_LIMITS } from './client.js';
import { type CloudEvent, decodeEvent } from './cloud-events.js';
import { Poison, type DeadLetterReason, sendDeadLetter } from './dead-letters.js';
import type { ConsumerMetrics } from './metrics.js';
import type { Publisher } from './publisher.js';
import { backoff_ms, pause } from './wait.js';

/**
 * The effect of an event, in the transaction that also holds its mark: database work only (R3). May be run again on a
 * serialization failure. What it returns runs after the commit and must not throw; if the process dies before, nobody
 * runs it.
 * @throws Poison for what no repetition makes better
 */
export type EventHandler = (tx: pg.PoolClient, event: CloudEvent, attempt: Attempt) => Promise<AfterCommit | undefined>;
export interface Attempt {
  /** Whatever it throws now makes the message a dead letter. */
  readonly is_last: boolean;
}
export type AfterCommit = () => void | Promise<void>;

export interface EventConsumer {
  /** In the mark and in the group's id: never change it. */
  readonly name: string;
  readonly topic: string;
  readonly handlers: Readonly<Record<string, EventHandler>>;
  /** Types that are none of ours: on a topic of facts others have theirs too; a command that nobody knows is an error. */
  readonly other_types: 'ignore' | 'dead_letter';
}

export interface ConsumerOptions {
  readonly kafka: Kafka;
  readonly pool: pg.Pool;
  /** For dead letters. */
  readonly publisher: Pick<Publisher, 'send'>;
  readonly metrics: ConsumerMetrics;
  readonly logger: Logger;
  /** Before the name; tests use one of their own. */
  readonly group_prefix?: string;
  /** Makes the topics where they are missing. Called before each attempt to subscribe. */
  readonly prepare?: () => Promise<void>;
  readonly limits?: Partial<Record<'session_ms' | 'max_attempts' | 'partitions_at_once', number>>;
  /** Tests kill the process there: the effect is committed, the offset is not. */
  readonly atCommitted?: (event: CloudEvent) => Promise<void> | void;
}

export const CONSUMER_LIMITS = {
  /** Failures of one message until it is a dead letter. A database that is away does not count. */
  max_attempts: 6,
  backoff: { first_ms: 100, max_ms: 5_000 },
  /** Each holds a connection of the pool while it works, which HTTP needs too. */
  partitions_at_once: 2,
  /** Offsets are committed after so many messages or so long; after a crash that much comes again, and finds its marks. */
  commit_messages: 100,
  commit_interval_ms: 1_000,
  /** How much one read brings of a partition, before the rest of a rebalance waits for it. */
  fetch_bytes_per_partition: 256 * 1024,
  fetch_wait_ms: 500,
} as const;

/** Where one message stands: done (acknowledge it), or dropped because this consumer stops (somebody gets it again). */
type Fate = 'done' | 'dropped';

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
  private readonly limits: { session_ms: number; max_attempts: number; partitions_at_once: number };
  private running: Promise<void> | null = null;

  constructor(
    private readonly consumes: EventConsumer,
    private readonly options: ConsumerOptions,
  ) {
    this.limits = { ...CONSUMER_LIMITS, session_ms: KAFKA_LIMITS.session_ms, ...options.limits };
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
      const fate = await this.handle({ topic, partition, message }, heartbeat);
      if (fate === 'dropped') return;
      payload.resolveOffset(message.offset);
      const lag = BigInt(highWatermark) - BigInt(message.offset) - 1n;
      this.options.metrics.setLag(this.consumes.name, topic, partition, Number(lag));
      await heartbeat();
      await payload.commitOffsetsIfNecessary();
    }
  }

  private async handle(at: MessageAt, heartbeat: () => Promise<void>): Promise<Fate> {
    const decoded = decodeEvent(at.message);
    if (!decoded.ok) return this.bury(at, decoded.reason, decoded.detail, 0, heartbeat);
    const { event } = decoded;
    const handler = Object.hasOwn(this.consumes.handlers, event.type) ? this.consumes.handlers[event.type] : undefined;
    if (handler !== undefined) return this.apply(at, event, handler, heartbeat);
    const reason = this.isOtherVersion(event.type) ? 'unknown_version' : 'unknown_type';
    if (reason === 'unknown_type' && this.consumes.other_types === 'ignore') {
      this.options.metrics.count(this.consumes.name, 'ignored');
      return 'done';
    }
    return this.bury(at, reason, `This consumer does not know ${event.type}.`, 0, heartbeat);
  }

  private isOtherVersion(type: string): boolean {
    const nameOf = (versioned: string): string => versioned.replace(/\.v\d+$/, '');
    return Object.keys(this.consumes.handlers).some((known) => nameOf(known) === nameOf(type));
  }

  private async apply(
    at: MessageAt,
    event: CloudEvent,
    handler: EventHandler,
    heartbeat: () => Promise<void>,
  ): Promise<Fate> {
    const { metrics, logger } = this.options;
    const { name } = this.consumes;
    for (let attempts = 1, waits = 0; !this.isStopping();) {
      try {
        const applied = await this.applyOnce(event, handler, { is_last: attempts >= this.limits.max_attempts });
        metrics.count(name, applied ? 'applied' : 'duplicate');
        return 'done';
      } catch (error) {
        if (error instanceof Poison) return this.bury(at, error.reason, error.message, attempts, heartbeat);
        metrics.count(name, 'retried');
        const place = { consumer: name, topic: at.topic, partition: at.partition, offset: at.message.offset };
        logger.warn({ err: error, ...place, event_id: event.id, attempts }, 'consumer: an event failed, trying again');
        if (!isAway(error) && attempts++ >= this.limits.max_attempts) {
          return this.bury(at, 'keeps_failing', reasonOf(error), this.limits.max_attempts, heartbeat);
        }
      }
      waits += 1;
      await pause(backoff_ms(waits, CONSUMER_LIMITS.backoff), this.stopping.signal);
      await heartbeat();
    }
    return 'dropped';
  }

  /** @returns false where it was done before */
  private async applyOnce(event: CloudEvent, handler: EventHandler, attempt: Attempt): Promise<boolean> {
    const { pool, atCommitted } = this.options;
    const result = await inTransaction(pool, async (tx) => {
      if (!(await markProcessed(tx, this.consumes.name, event.id))) return { applied: false, after: undefined };
      return { applied: true, after: await handler(tx, event, attempt) };
    });
    await result.after?.();
    await atCommitted?.(event);
    return result.applied;
  }

  /** Into the dead-letter topic; tried until it is there, because only then may the message be acknowledged. */
  private async bury(
    at: MessageAt,
    reason: DeadLetterReason,
    detail: string,
    attempts: number,
    heartbeat: () => Promise<void>,
  ): Promise<Fate> {
    const { publisher, metrics, logger } = this.options;
    const place = { consumer: this.consumes.name, topic: at.topic, partition: at.partition, offset: at.message.offset };
    for (let tries = 1; !this.isStopping(); tries += 1) {
      try {
        await sendDeadLetter(publisher, { ...at, consumer: this.consumes.name, reason, detail, attempts });
        metrics.count(this.consumes.name, 'dead_letter');
        logger.error({ ...place, reason, detail }, 'consumer: a message went to the dead letters');
        return 'done';
      } catch (error) {
        logger.warn({ err: error, ...place }, 'consumer: a dead letter could not be sent, trying again');
      }
      await pause(backoff_ms(tries, CONSUMER_LIMITS.backoff), this.stopping.signal);
      await heartbeat();
    }
    return 'dropped';
  }

  private stopped(): Promise<void> {
    return new Promise((resolve) => {
      if (this.isStopping()) resolve();
      this.stopping.signal.addEventListener('abort', () => resolve(), { once: true });
    });
  }
}

interface MessageAt {
  readonly topic: string;
  readonly partition: number;
  readonly message: KafkaMessage;
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

/** The database is away: not the message's fault. Our own time limits may well be: some statement is too slow for them. */
function isAway(error: unknown): boolean {
  return isUnavailable(error) && !['57014', '55P03', '25P03'].includes(sqlState(error) ?? '');
}

/** For people, without what a database error repeats of the row. */
function reasonOf(error: unknown): string {
  const state = sqlState(error);
  if (state !== undefined) return `The database refuses it (SQLSTATE ${state}).`;
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
