import type { Config } from '../config.js';
import type { Database } from '../database/database.js';
import type { Logger } from '../logger.js';
import type { Metrics } from '../metrics.js';
import type { PaymentsContext } from '../payments/context.js';
import { createKafka } from './client.js';
import { eventSource } from './cloud-events.js';
import { type ConsumerOptions, ConsumerRunner } from './consumer.js';
import { orderProjection } from './consumers/order-projection.js';
import { paymentCommands } from './consumers/payment-commands.js';
import { wallet } from './consumers/wallet.js';
import { createConsumerMetrics } from './metrics.js';
import { Publisher } from './publisher.js';
import { Relay } from './relay.js';
import { RunPool } from './run-pool.js';
import { setUpTopics } from './topic-setup.js';
import { backoff_ms, pause } from './wait.js';

export interface KafkaDependencies {
  readonly config: Pick<Config, 'retention'>;
  readonly brokers: readonly string[];
  readonly database: Pick<Database, 'pool' | 'listen_url'>;
  readonly payments: PaymentsContext;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** Provider calls of commands under way at once, and how many may wait for one. */
const COMMANDS_RUNNING_MAX = 16;
const COMMANDS_WAITING_MAX = 1_000;
const SET_UP_BACKOFF = { first_ms: 500, max_ms: 30_000 };

/**
 * Starts the relay and the consumers. Resolves at once, whether or not the brokers can be reached: events stay in the
 * outbox until they can. `stop` ends after what is under way: consumers first, then their provider calls, then the
 * relay, which so publishes what they led to.
 */
export async function startKafka(dependencies: KafkaDependencies): Promise<{ stop(): Promise<void> }> {
  const { brokers, database, payments, metrics, logger, config } = dependencies;
  const kafka = createKafka(brokers, 'oncepay', logger);
  // Each with a producer of its own: dead letters must not wait for events, nor the other way round.
  const [events, dead_letters] = [new Publisher(kafka), new Publisher(kafka)];
  const relay = new Relay({
    pool: database.pool,
    connection_string: database.listen_url,
    source: eventSource(payments.installation_id),
    publisher: events,
    metrics,
    logger,
  });
  const pool = new RunPool({ max_running: COMMANDS_RUNNING_MAX, max_waiting: COMMANDS_WAITING_MAX, logger });
  const options: ConsumerOptions = {
    kafka,
    pool: database.pool,
    publisher: dead_letters,
    metrics: createConsumerMetrics(metrics.registry),
    logger,
  };
  const consumers = [orderProjection, wallet, paymentCommands(payments, pool)].map(
    (consumer) => new ConsumerRunner(consumer, options),
  );
  const stopping = new AbortController();
  const started = setUp(stopping.signal, () => setUpTopics(kafka, logger, config.retention.processed_event_h), logger);
  void started.then(() => consumers.forEach((consumer) => consumer.start()));
  relay.start();
  return {
    async stop() {
      stopping.abort();
      await started;
      await Promise.all(consumers.map((consumer) => consumer.stop()));
      await pool.stop();
      await relay.stop();
      await Promise.all([events.close(), dead_letters.close()]);
    },
  };
}

/** Until the brokers have been reached once, or it is stopped. */
async function setUp(signal: AbortSignal, run: () => Promise<void>, logger: Logger): Promise<void> {
  for (let tries = 1; !signal.aborted; tries += 1) {
    try {
      await run();
      return;
    } catch (error) {
      if (tries === 1) logger.warn({ err: error }, 'kafka: the brokers can not be reached; events wait in the outbox');
    }
    await pause(backoff_ms(tries, SET_UP_BACKOFF), signal);
  }
}
