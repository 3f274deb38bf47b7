/** A relay in a process of its own: says SENT after each send and, where told so, never comes to mark it. */
import { openDatabase } from '../../../src/database/database.js';
import { createKafka } from '../../../src/kafka/client.js';
import { Publisher } from '../../../src/kafka/publisher.js';
import { Relay } from '../../../src/kafka/relay.js';
import { createLogger } from '../../../src/logger.js';

const options = JSON.parse(process.argv[2] ?? '') as {
  database_url: string;
  brokers: string[];
  source: string;
  lease_ms: number;
  hang_after_send: boolean;
};
const logger = createLogger('silent');
const { pool } = openDatabase(options.database_url, { pool_size: 2 });

new Relay({
  pool,
  connection_string: options.database_url,
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
