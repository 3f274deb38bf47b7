/** A wallet or order consumer in a process of its own; says what it has committed, and where told so goes no further. */
import type { Pooler } from '../../../src/config-variables.js';
import { openDatabase } from '../../../src/database/database.js';
import { createKafka } from '../../../src/kafka/client.js';
import { ConsumerRunner } from '../../../src/kafka/consumer.js';
import { orderProjection } from '../../../src/kafka/consumers/order-projection.js';
import { wallet } from '../../../src/kafka/consumers/wallet.js';
import { createConsumerMetrics } from '../../../src/kafka/metrics.js';
import { Publisher } from '../../../src/kafka/publisher.js';
import { createLogger } from '../../../src/logger.js';
import { createMetrics } from '../../../src/metrics.js';

const options = JSON.parse(process.argv[2] ?? '') as {
  database: { url: string; pooler: Pooler };
  brokers: string[];
  consumer: 'wallet' | 'order-projection';
  topic: string;
  group_prefix: string;
  session_ms: number;
  hang_after_commit: boolean;
};
const logger = createLogger('silent');
const kafka = createKafka(options.brokers, 'child', logger);
const { pool } = openDatabase(options.database.url, { pool_size: 4, pooler: options.database.pooler });
const consumes = { ...(options.consumer === 'wallet' ? wallet : orderProjection), topic: options.topic };

new ConsumerRunner(consumes, {
  kafka,
  pool,
  publisher: new Publisher(kafka),
  metrics: createConsumerMetrics(createMetrics().registry),
  logger,
  group_prefix: options.group_prefix,
  limits: { session_ms: options.session_ms },
  atCommitted: (event) => {
    process.stdout.write(`COMMITTED ${event.id}\n`);
    return options.hang_after_commit ? new Promise(() => undefined) : undefined;
  },
}).start();
