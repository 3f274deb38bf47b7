import { refuseUnmigrated, runCommandLine, userAtHost } from '../clients/command-line.js';
import { findDatabase } from '../clients/find-database.js';
import { type Config, readConfig } from '../config.js';
import { type Database, openDatabase } from '../database/database.js';
import { createLogger } from '../logger.js';
import { createMetrics } from '../metrics.js';
import { createPayments, type PaymentsContext } from '../payments/context.js';
import { createProviders } from '../providers/registry.js';
import { settleInstallation } from '../store/installation.js';
import { isRefusal, parseCommand, USAGE } from './command.js';

const HOUR_MS = 60 * 60_000;
/** No provider is called from here; only how long one remembers keys is asked. */
const NO_ADDRESS = 'http://127.0.0.1:1';

const print = (text: string): void => console.log(text);
const say = (text: string): void => console.error(text);

/** `npm run operations -- …`: what operators do (docs/operations.md). Ends with 2 for what it does not understand. */
async function run(args: readonly string[]): Promise<void> {
  const command = parseCommand(args);
  const config = readConfig();
  const found = await findDatabase(config, process.cwd());
  const database = openDatabase(found.url, { pool_size: 2, pooler: found.pooler });
  try {
    await refuseUnmigrated(database.pool);
    const payments = await paymentsOf(config, database);
    await command({ payments, prisma: database.prisma, user: userAtHost(), print });
  } finally {
    await database.close();
    await found.close();
  }
}

async function paymentsOf(config: Config, { pool }: Database): Promise<PaymentsContext> {
  return createPayments({
    pool,
    providers: await createProviders(config, { sandbox_url: NO_ADDRESS, sandbox_webhook_secrets: [] }),
    installation_id: await settleInstallation(pool, config.installation_id),
    timing: config.timing,
    retention_ms: config.retention.idempotency_h * HOUR_MS,
    auto_refund_anomalies: config.auto_refund_anomalies,
    metrics: createMetrics(),
    logger: createLogger('error', process.stderr),
  });
}

process.exitCode = await runCommandLine(process.argv.slice(2), { usage: USAGE, isRefusal, run, print, say });
