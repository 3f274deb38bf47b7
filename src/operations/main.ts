import { existsSync } from 'node:fs';
import { hostname, userInfo } from 'node:os';
import { findDatabase, NoDatabaseError } from '../clients/find-database.js';
import { UsageError } from '../clients/command.js';
import { type Config, ConfigError, parseConfig } from '../config.js';
import { type Database, openDatabase } from '../database/database.js';
import { isUnavailable } from '../database/errors.js';
import { MigrationError, pendingMigrations } from '../database/migrate.js';
import { createLogger } from '../logger.js';
import { createMetrics } from '../metrics.js';
import { createPayments, type PaymentsContext } from '../payments/context.js';
import { createProviders } from '../providers/registry.js';
import { settleInstallation } from '../store/installation.js';
import { isRefusal, parseCommand, USAGE } from './command.js';

const HOUR_MS = 60 * 60_000;
const ENV_FILE = '.env';
/** No provider is called from here; only how long one remembers keys is asked. */
const NO_ADDRESS = 'http://127.0.0.1:1';

/** `npm run operations -- …`: what operators do (docs/operations.md). Ends with 2 for what it does not understand. */
async function main(args: readonly string[]): Promise<number> {
  if (args.length === 0 || args.includes('--help') || args.includes('-h') || args[0] === 'help') {
    console.log(USAGE);
    return args.length === 0 ? 2 : 0;
  }
  const run = parseCommand(args);
  if (existsSync(ENV_FILE)) process.loadEnvFile(ENV_FILE);
  const config = parseConfig(process.env);
  const found = await findDatabase(config, process.cwd());
  const database = openDatabase(found.url, { pool_size: 2 });
  try {
    if ((await pendingMigrations(database.pool)).length > 0) {
      throw new MigrationError(
        'The database is not at the version of this code. Start the service once: it brings it there',
      );
    }
    const payments = await paymentsOf(config, database);
    await run({ payments, prisma: database.prisma, user: userName(), print: (line) => console.log(line) });
    return 0;
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

function userName(): string {
  try {
    return `${userInfo().username}@${hostname()}`;
  } catch {
    return `${String(process.getuid?.() ?? 'unknown')}@${hostname()}`;
  }
}

/** What goes to standard error: a defect with its stack, everything else in words. */
function explain(error: unknown): string {
  if (error instanceof UsageError) return `${error.message}\n\n${USAGE}`;
  if (isUnavailable(error)) return `The database can't be reached: ${error instanceof Error ? error.message : ''}`;
  if (!(error instanceof Error)) return String(error);
  const foreseen =
    isRefusal(error) || [ConfigError, MigrationError, NoDatabaseError].some((kind) => error instanceof kind);
  return foreseen ? error.message : (error.stack ?? error.message);
}

main(process.argv.slice(2)).then(
  (code) => (process.exitCode = code),
  (error: unknown) => {
    console.error(explain(error));
    process.exitCode = isRefusal(error) ? 2 : 1;
  },
);
