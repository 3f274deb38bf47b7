/** A relay in a process of its own: says SENT after each send and, where told so, never comes to mark it. */
import type { Pooler } from '../../../src/config-variables.js';
import { openDatabase } from '../../../src/database/database.js';
import { createKafka } from '../../../src/kafka/client.js';
import { Publisher } from '../../../src/kafka/publisher.js';
import { Relay } from '../../../src/kafka/relay.js';
import { createLogger } from '../../../src/logger.js';

const options = JSON.parse(process.argv[2] ?? '') as {
  database: { url: string; pooler: Pooler };
  brokers: string[];
  source: string;
  lease_ms: number;
  hang_after_send: boolean;
};
const logger = createLogger('silent');
const { pool, listen_url } = openDatabase(options.database.url, { pool_size: 2, pooler: options.database.pooler });

new Relay({
  pool,
  connection_string: listen_url,
  source: options.source,
  publisher: new Publisher(createKafka(options.brokers, 'child', logger)),
  logger,
  metrics: { countOutbox: () => undefined },
  limits: { lease_ms: options.lease_ms },
  atSent: (rows) => {
    process.stdout.write(`SENT ${rows.length}\n`);
    return options.hang_after_send ? new Promise(() => undefined) : undefined;
  },
}).start();
