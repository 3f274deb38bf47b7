import { parseArgs } from 'node:util';
import { findDatabase } from '../clients/find-database.js';
import { readConfig } from '../config.js';
import { openPool } from '../database/database.js';
import { createLogger } from '../logger.js';
import { settleInstallation } from '../store/installation.js';
import { createKafka } from './client.js';
import { eventSource } from './cloud-events.js';
import { Publisher } from './publisher.js';
import { replayDeadLetters, replayEvents } from './replay.js';

const USAGE = `Publishes again, with the same ids (KAFKA_BROKERS is needed):

  npm run replay -- events --from 2026-01-31T00:00:00Z --to 2026-02-01T00:00:00Z [--topic payments.events] [--key ID]
      what was published of this time range, in the order of each key
  npm run replay -- dead-letters --topic payments.commands [--reason keeps_failing]…
      the dead letters of a topic that no replay has taken yet, back into the topic`;

class UsageError extends Error {}

/** `npm run replay`. Ends with 2 for what it does not understand. */
async function main(args: readonly string[]): Promise<number> {
  const { positionals, values } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      from: { type: 'string' },
      to: { type: 'string' },
      topic: { type: 'string' },
      key: { type: 'string' },
      reason: { type: 'string', multiple: true },
    },
  });
  const config = readConfig();
  if (config.kafka_brokers === null) throw new UsageError('KAFKA_BROKERS is not set.');
  const logger = createLogger('warn');
  const kafka = createKafka(config.kafka_brokers, 'oncepay-replay', logger);
  const publisher = new Publisher(kafka);
  try {
    switch (positionals[0]) {
      case 'events': {
        const range = { from: timeOf(values.from, '--from'), to: timeOf(values.to, '--to') };
        const database = await findDatabase(config, process.cwd());
        const pool = openPool(database.url, { pool_size: 1, pooler: database.pooler });
        try {
          const source = eventSource(await settleInstallation(pool, config.installation_id));
          const filter = { topic: values.topic ?? null, key: values.key ?? null };
          console.log(
            `${await replayEvents({ pool, publisher, source }, { ...range, ...filter })} events published again.`,
          );
        } finally {
          await pool.end();
          await database.close();
        }
        return 0;
      }
      case 'dead-letters': {
        if (values.topic === undefined) throw new UsageError('--topic is needed: the topic that they go back to.');
        const reasons = values.reason === undefined ? null : new Set(values.reason);
        const { replayed, skipped } = await replayDeadLetters({ kafka, publisher, logger }, values.topic, reasons);
        console.log(`${replayed} dead letters put back, ${skipped} passed over.`);
        return 0;
      }
      default:
        throw new UsageError('Say what: events or dead-letters.');
    }
  } finally {
    await publisher.close();
  }
}

function timeOf(text: string | undefined, option: string): Date {
  const time = new Date(text ?? '');
  if (text === undefined || Number.isNaN(time.getTime())) {
    throw new UsageError(`${option} must be a time such as 2026-01-31T10:00:00Z.`);
  }
  return time;
}

main(process.argv.slice(2)).then(
  (code) => (process.exitCode = code),
  (error: unknown) => {
    const isUsage = error instanceof UsageError || (error instanceof TypeError && 'code' in error);
    console.error(error instanceof Error ? error.message : error);
    if (isUsage) console.error(`\n${USAGE}`);
    process.exitCode = isUsage ? 2 : 1;
  },
);
