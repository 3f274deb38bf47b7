import { findDatabase } from '../clients/find-database.js';
import { readConfig } from '../config.js';
import { openPool } from '../database/database.js';
import { createLogger } from '../logger.js';
import { sweep } from './retention.js';

const HOUR_MS = 60 * 60_000;

/** `npm run retention`: one sweep now. Ends with 1 where another instance is at it. */
async function main(): Promise<number> {
  const config = readConfig();
  const database = await findDatabase(config, process.cwd());
  const pool = openPool(database.url, { pool_size: 1, pooler: database.pooler });
  try {
    const swept = await sweep({
      pool,
      logger: createLogger('warn'),
      idempotency_retention_ms: config.retention.idempotency_h * HOUR_MS,
      processed_event_retention_ms: config.retention.processed_event_h * HOUR_MS,
      countDeleted: () => undefined,
    });
    if (!swept) {
      console.error('Another instance is sweeping right now; nothing was done.');
      return 1;
    }
    console.log(
      `Deleted ${swept.idempotency_record} idempotency records, ${swept.processed_event} processed events, ${swept.outbox_event} published events.`,
    );
    return 0;
  } finally {
    await pool.end();
    await database.close();
  }
}

main().then(
  (code) => (process.exitCode = code),
  (error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  },
);
