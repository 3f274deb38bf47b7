import { PassThrough } from 'node:stream';
import type { FastifyInstance, FastifyPluginAsync } from 'fastify';
import { buildApp, type AppDependencies } from '../../src/app.js';
import { createClient } from '../../src/clients/changes.js';
import { SCOPES, type Scope } from '../../src/clients/scopes.js';
import { parseConfig } from '../../src/config.js';
import type { Database } from '../../src/database/database.js';
import { createLogger, type Logger } from '../../src/logger.js';
import { createMetrics } from '../../src/metrics.js';
import { createPayments } from '../../src/payments/context.js';
import { createProviders } from '../../src/providers/registry.js';
import { createTestDatabase, type DatabaseAddress } from './database.js';

export interface ShellOptions {
  readonly env?: NodeJS.ProcessEnv;
  /** Routes of the test's own, behind everything that guards ours. */
  readonly routes?: FastifyPluginAsync;
  /** Instead of a migrated database of its own. */
  readonly address?: DatabaseAddress;
}

/** The service's HTTP shell, listening, over a database of its own. */
export interface Shell {
  readonly app: FastifyInstance;
  readonly url: string;
  readonly database: Database;
  /** Every line that was logged, parsed. */
  readonly log: readonly Record<string, unknown>[];
  /** Makes a client. @returns its API key */
  client(id: string, scopes?: readonly Scope[]): Promise<string>;
  close(): Promise<void>;
}

export async function startShell(options: ShellOptions = {}): Promise<Shell> {
  const own = options.address === undefined ? await createTestDatabase() : null;
  const database = (options.address ?? own!).open({ pool_size: 4 });
  const log: Record<string, unknown>[] = [];
  const dependencies = await shellDependencies(database, createLogger('debug', collect(log)), options.env);
  const { routes } = options;
  const app = await buildApp({ ...dependencies, ...(routes === undefined ? {} : { hooks: { routes } }) });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  return {
    app,
    url,
    database,
    log,
    client: async (id, scopes = SCOPES) => {
      const client = { id, name: id, scopes };
      return (await createClient(database.pool, client, { actor: 'test' })).key;
    },
    close: async () => {
      await app.close();
      await database.close();
      await own?.drop();
    },
  };
}

/** What the app is made of, with the instant provider: nothing here moves money. */
export async function shellDependencies(
  database: Database,
  logger: Logger,
  env: NodeJS.ProcessEnv = {},
): Promise<Omit<AppDependencies, 'hooks'>> {
  const config = parseConfig({ RATE_LIMIT_PER_SECOND: '0', PROVIDERS: 'instant', ...env });
  const metrics = createMetrics();
  const payments = createPayments({
    pool: database.pool,
    providers: await createProviders(config, { sandbox_url: null, sandbox_webhook_secrets: [] }),
    installation_id: 'test',
    timing: config.timing,
    retention_ms: config.retention.idempotency_h * 60 * 60_000,
    auto_refund_anomalies: false,
    metrics,
    logger,
  });
  return { config, database, payments, metrics, logger };
}

function collect(lines: Record<string, unknown>[]): PassThrough {
  const stream = new PassThrough();
  stream.on('data', (chunk: Buffer) => {
    for (const line of chunk.toString().split('\n').filter(Boolean)) lines.push(JSON.parse(line));
  });
  return stream;
}
