import { newId } from '../domain/id.js';
import type pg from 'pg';
import type { Logger } from '../logger.js';
import type { Metrics } from '../metrics.js';
import { Listener } from '../database/listener.js';
import {
  claimShards,
  finishRound,
  OUTBOX_CHANNEL,
  readUnsent,
  type RoundResult,
  type StoredEvent,
  wantWakeUp,
} from '../store/outbox.js';
import { isRefusal } from './client.js';
import { encodeEvent } from './cloud-events.js';
import type { OutgoingMessage } from './publisher.js';
import { backoff_ms, WakeUp } from './wait.js';

/** Limits of the relay, with why. */
export const RELAY_LIMITS = {
  /** Longer than a round: one send tries for about 25 s at the worst. Over: another relay may send the same rows. */
  lease_ms: 45_000,
  /** Of 16. So several relays share the work, and one that dies holds up a quarter of the payments until its lease ends. */
  shards_per_round: 4,
  rows_per_shard: 250,
  /** One record batch must fit the topic's `max.message.bytes` (1 MiB by default), with room for keys and headers. */
  batch_bytes: 512 * 1024,
  batch_rows: 500,
  /** Refusals of a row until it is quarantined. */
  max_attempts: 3,
  /** Nothing there: looks again so often, then asks to be woken. Under load it never gets so far, and nobody pays for NOTIFY. */
  linger_ms: 25,
  linger_rounds: 8,
  /** Asleep: the fallback for a notification that was missed, and for when nobody can listen. */
  poll_ms: 500,
  deaf_poll_ms: 100,
  backoff: { first_ms: 200, max_ms: 5_000 },
} as const;

export interface RelayOptions {
  readonly pool: pg.Pool;
  readonly connection_string: string | null;
  readonly source: string;
  readonly publisher: { send(messages: readonly OutgoingMessage[]): Promise<void> };
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'countOutbox'>;
  /** Tests shorten them. */
  readonly limits?: Partial<Record<'lease_ms' | 'shards_per_round' | 'rows_per_shard', number>>;
  /** Tests stop or kill the relay there. */
  readonly atSent?: (rows: readonly StoredEvent[]) => Promise<void> | void;
}

interface Round {
  readonly token: string;
  readonly sent: string[];
  readonly refused: { id: string; error: string }[];
  /** Keys with an event that was refused and is to be tried again: what comes after it waits for its end. */
  readonly held: Set<string>;
  /** Why the round ended early: the broker, or the way to it. */
  trouble: unknown;
}

/**
 * Publishes the outbox, in order per key, for as long as it runs. Several may run, in one process or many. No broker
 * call happens inside a transaction: shards are leased, events sent, and then marked (R3).
 */
export class Relay {
  private readonly wakeUp = new WakeUp();
  private readonly listener: Listener;
  private readonly limits: { lease_ms: number; shards_per_round: number; rows_per_shard: number };
  private running: Promise<void> | null = null;
  private stopping = false;
  private wanted = false;
  private failures = 0;

  constructor(private readonly options: RelayOptions) {
    this.limits = { ...RELAY_LIMITS, ...options.limits };
    this.listener = new Listener({
      connection_string: options.connection_string,
      application_name: 'oncepay outbox',
      channel: OUTBOX_CHANNEL,
      onEvent: () => this.wakeUp.wake(),
      onError: (error) => options.logger.warn({ err: error }, 'outbox: no notifications for now, polling instead'),
    });
  }

  start(): void {
    if (this.running !== null) return;
    void this.listener.start();
    this.running = this.run();
  }

  /** Ends after the round under way. */
  async stop(): Promise<void> {
    this.stopping = true;
    this.wakeUp.wake();
    await this.running;
    await this.listener.stop();
  }

  private async run(): Promise<void> {
    let empty = 0;
    while (!this.stopping) {
      try {
        const found = await this.round();
        empty = found ? 0 : empty + 1;
        await this.rest(empty);
      } catch (error) {
        // The database is away; nothing is lost, the rows are there.
        await this.backOff(error, 'outbox: the database can not be reached');
      }
    }
  }

  /** What to do after a round: go on, look again soon, or sleep until woken. */
  private async rest(empty: number): Promise<void> {
    if (empty === 0) {
      if (this.wanted) await this.want(false);
      return;
    }
    if (empty < RELAY_LIMITS.linger_rounds) {
      await this.wakeUp.sleep(RELAY_LIMITS.linger_ms);
      return;
    }
    if (!this.listener.listening) {
      await this.wakeUp.sleep(RELAY_LIMITS.deaf_poll_ms);
      return;
    }
    // Said again at every poll: another relay may have taken it back when it found work. After the first time the next
    // round follows at once, for what was written before it was said.
    const first = !this.wanted;
    await this.want(true);
    if (!first) await this.wakeUp.sleep(RELAY_LIMITS.poll_ms);
  }

  private async want(wanted: boolean): Promise<void> {
    await wantWakeUp(this.options.pool, wanted);
    this.wanted = wanted;
  }

  /** @returns whether there was anything to do */
  private async round(): Promise<boolean> {
    const { pool } = this.options;
    const { lease_ms, shards_per_round, rows_per_shard } = this.limits;
    const token = newId();
    const shards = await claimShards(pool, { token, lease_ms, max_shards: shards_per_round });
    if (shards.length === 0) return false;
    const round: Round = { token, sent: [], refused: [], held: new Set(), trouble: null };
    try {
      const rows = await readUnsent(pool, shards, rows_per_shard);
      await this.sendAll(rows, round);
    } finally {
      await this.finish(round);
    }
    if (round.trouble === null) this.failures = 0;
    else await this.backOff(round.trouble, 'outbox: events could not be sent, trying again');
    return true;
  }

  private async sendAll(rows: readonly StoredEvent[], round: Round): Promise<void> {
    // Per topic: one that does not exist must not hold the others.
    for (const topic of new Set(rows.map((row) => row.topic))) {
      for (const batch of batches(rows.filter((row) => row.topic === topic))) {
        if (this.stopping) return;
        if (!(await this.sendBatch(free(batch, round), round))) break;
      }
    }
  }

  /** @returns whether the topic's next batch may follow */
  private async sendBatch(batch: readonly StoredEvent[], round: Round): Promise<boolean> {
    if (batch.length === 0) return true;
    try {
      await this.send(batch, round);
      return true;
    } catch (error) {
      if (!isRefusal(error)) {
        round.trouble = error;
        return false;
      }
      if (batch.length > 1) return this.sendSingly(batch, round);
      const [row] = batch;
      if (row !== undefined) this.refuse(row, error, round);
      return true;
    }
  }

  /** Finds out which of them the broker refuses. */
  private async sendSingly(batch: readonly StoredEvent[], round: Round): Promise<boolean> {
    for (const row of batch) {
      if (this.stopping) return false;
      if (!(await this.sendBatch(free([row], round), round))) return false;
    }
    return true;
  }

  private async send(batch: readonly StoredEvent[], round: Round): Promise<void> {
    await this.options.publisher.send(batch.map((row) => encodeEvent(row, this.options.source)));
    await this.options.atSent?.(batch);
    for (const row of batch) round.sent.push(row.id);
  }

  private refuse(row: StoredEvent, error: unknown, round: Round): void {
    round.refused.push({ id: row.id, error: error instanceof Error ? error.message : String(error) });
    if (row.attempts + 1 < RELAY_LIMITS.max_attempts) round.held.add(row.key);
    const { id, key, type, sequence } = row;
    this.options.logger.warn({ err: error, event: { id, key, type, sequence } }, 'outbox: the broker refuses an event');
  }

  private async finish(round: Round): Promise<void> {
    const { token, sent, refused } = round;
    const result: RoundResult = { token, sent, refused, max_attempts: RELAY_LIMITS.max_attempts };
    const quarantined = await finishRound(this.options.pool, result);
    const { metrics, logger } = this.options;
    if (sent.length > 0) metrics.countOutbox('published', sent.length);
    if (refused.length > 0) metrics.countOutbox('failed', refused.length);
    if (quarantined.length === 0) return;
    metrics.countOutbox('quarantined', quarantined.length);
    logger.error({ event_ids: quarantined }, 'outbox: events that can not be sent are quarantined; later ones go on');
  }

  private async backOff(error: unknown, message: string): Promise<void> {
    this.failures += 1;
    // Once per outage, not at every try.
    if (this.failures === 1) this.options.logger.warn({ err: error }, message);
    const until = performance.now() + backoff_ms(this.failures, RELAY_LIMITS.backoff);
    // New events don't shorten it, a stop does.
    while (!this.stopping && performance.now() < until) await this.wakeUp.sleep(until - performance.now());
  }
}

function free(rows: readonly StoredEvent[], round: Round): StoredEvent[] {
  return rows.filter((row) => !round.held.has(row.key));
}

/** Slices that fit into one record batch. A row that is larger than that goes alone. */
function batches(rows: readonly StoredEvent[]): StoredEvent[][] {
  const result: StoredEvent[][] = [];
  let current: StoredEvent[] = [];
  let bytes = 0;
  for (const row of rows) {
    const size = Buffer.byteLength(row.data) + 500;
    if (current.length > 0 && (bytes + size > RELAY_LIMITS.batch_bytes || current.length >= RELAY_LIMITS.batch_rows)) {
      result.push(current);
      current = [];
      bytes = 0;
    }
    current.push(row);
    bytes += size;
  }
  if (current.length > 0) result.push(current);
  return result;
}
