import type { KafkaMessage } from 'kafkajs';
import type pg from 'pg';
import { isUnavailable } from '../database/errors.js';
import { inTransaction, sqlState } from '../database/transaction.js';
import type { Logger } from '../logger.js';
import { markProcessed } from '../store/processed-event.js';
import { type CloudEvent, decodeEvent } from './cloud-events.js';
import { type DeadLetterReason, Poison, sendDeadLetter } from './dead-letters.js';
import type { Attempt, EventConsumer, EventHandler } from './event-consumer.js';
import type { ConsumerMetrics } from './metrics.js';
import type { Publisher } from './publisher.js';
import { backoff_ms, pause } from './wait.js';

export interface MessageWorkerOptions {
  readonly pool: pg.Pool;
  /** For dead letters. */
  readonly publisher: Pick<Publisher, 'send'>;
  readonly metrics: ConsumerMetrics;
  readonly logger: Logger;
  /** Tests kill the process there: the effect is committed, the offset is not. */
  readonly atCommitted?: (event: CloudEvent) => Promise<void> | void;
}

export const MESSAGE_LIMITS = {
  /** Failures of one message until it is a dead letter. A database that is away does not count. */
  max_attempts: 6,
  backoff: { first_ms: 100, max_ms: 5_000 },
} as const;

/** Where one message stands: done (acknowledge it), or dropped because this consumer stops (somebody gets it again). */
export type Fate = 'done' | 'dropped';

export interface MessageAt {
  readonly topic: string;
  readonly partition: number;
  readonly message: KafkaMessage;
}

/**
 * Works off a consumer's messages, those of a partition one after another: decodes, finds the handler, applies once, buries
 * what can't be applied. The mark and the effect are one transaction, so a second delivery does nothing (R3).
 */
export class MessageWorker {
  /** @param stopping ends the waiting between attempts; a message that is not through by then is dropped */
  constructor(
    private readonly consumes: EventConsumer,
    private readonly options: MessageWorkerOptions,
    private readonly max_attempts: number,
    private readonly stopping: AbortSignal,
  ) {}

  /**
   * Applies it, or puts it into the dead letters; tries again for as long as neither works, with a heartbeat each time.
   * Never throws for what the message holds.
   */
  async workOff(at: MessageAt, heartbeat: () => Promise<void>): Promise<Fate> {
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
    for (let attempts = 1, waits = 0; !this.stopping.aborted;) {
      try {
        const applied = await this.applyOnce(event, handler, { is_last: attempts >= this.max_attempts });
        metrics.count(name, applied ? 'applied' : 'duplicate');
        return 'done';
      } catch (error) {
        if (error instanceof Poison) return this.bury(at, error.reason, error.message, attempts, heartbeat);
        metrics.count(name, 'retried');
        const place = { consumer: name, topic: at.topic, partition: at.partition, offset: at.message.offset };
        logger.warn({ err: error, ...place, event_id: event.id, attempts }, 'consumer: an event failed, trying again');
        if (!isAway(error) && attempts++ >= this.max_attempts) {
          return this.bury(at, 'keeps_failing', reasonOf(error), this.max_attempts, heartbeat);
        }
      }
      waits += 1;
      await pause(backoff_ms(waits, MESSAGE_LIMITS.backoff), this.stopping);
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
    for (let tries = 1; !this.stopping.aborted; tries += 1) {
      try {
        await sendDeadLetter(publisher, { ...at, consumer: this.consumes.name, reason, detail, attempts });
        metrics.count(this.consumes.name, 'dead_letter');
        logger.error({ ...place, reason, detail }, 'consumer: a message went to the dead letters');
        return 'done';
      } catch (error) {
        logger.warn({ err: error, ...place }, 'consumer: a dead letter could not be sent, trying again');
      }
      await pause(backoff_ms(tries, MESSAGE_LIMITS.backoff), this.stopping);
      await heartbeat();
    }
    return 'dropped';
  }
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
