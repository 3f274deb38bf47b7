import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Pool } from 'pg';
import { buildApp } from './app.js';
import { generateApiKey } from './clients/api-key.js';
import { bootstrapClient } from './clients/bootstrap.js';
import type { Config } from './config.js';
import { openDataDir, type DataDir } from './database/data-dir.js';
import { openDatabase } from './database/database.js';
import { startEmbeddedPostgres, type EmbeddedPostgres } from './database/embedded/server.js';
import { migrate } from './database/migrate.js';
import { keepSecret } from './database/secret-file.js';
import { checkSession, INDEX_PLANS } from './database/session.js';
import { startJobs } from './jobs/index.js';
import type { Logger } from './logger.js';
import { createMetrics } from './metrics.js';
import { createPayments, type StepHook } from './payments/context.js';
import { createProviders } from './providers/registry.js';
import { ledgerFile, startSimulator } from './simulator/server.js';
import { settleInstallation } from './store/installation.js';

const HOUR_MS = 60 * 60_000;

/** A running service. */
export interface Service {
  readonly facts: StartFacts;
  /** Drains: in-flight requests finish, jobs stop, then what they stand on, the embedded database last. */
  stop(): Promise<void>;
  /** For a drain that takes too long: what would go on without this process is told to end. Does not wait. */
  abandon(): void;
}

/** What the crash matrix puts in; main.ts passes nothing, so that no setting can make production stop at a step. */
export interface StartHooks {
  readonly atStep?: StepHook;
}

/** What somebody who has just started it wants to know. */
export interface StartFacts {
  readonly address: string;
  readonly data_dir: string | null;
  readonly database_directory: string | null;
  readonly api_key_file: string | null;
  readonly has_bootstrap_key: boolean;
  /** Of the simulator inside, or of the one configured; null without the provider `sandbox`. */
  readonly sandbox_url: string | null;
  readonly default_provider: string;
}

/** Started things with the way to end them; ended last first. */
class Closers {
  private readonly closers: (() => Promise<void> | void)[] = [];

  add(close: () => Promise<void> | void): void {
    this.closers.push(close);
  }

  /** Ends all, also when one of them fails; then the first failure is thrown. */
  async close(): Promise<void> {
    const failures: unknown[] = [];
    for (let close = this.closers.pop(); close !== undefined; close = this.closers.pop()) {
      try {
        await close();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }
}

/**
 * Starts everything that the configuration asks for, from the database up. When a part fails to start, those that
 * have are ended again.
 * @throws Error with a text for people
 */
export async function startService(given: Config, logger: Logger, hooks: StartHooks = {}): Promise<Service> {
  const closers = new Closers();
  try {
    return await startAll(await withPort(given), logger, closers, hooks);
  } catch (error) {
    await closers.close().catch((failure: unknown) => logger.error({ err: failure }, 'ending what had started failed'));
    throw error;
  }
}

async function startAll(config: Config, logger: Logger, closers: Closers, hooks: StartHooks): Promise<Service> {
  const data_dir = await openDataDirIfNeeded(config, closers);
  const embedded = await startDatabaseIfNeeded(config, data_dir, closers);
  const url = config.database.url ?? embedded?.url;
  if (url === undefined) throw new Error('There is neither a DATABASE_URL nor an embedded database');
  const database = openDatabase(url, {
    pool_size: config.database.pool_size,
    settings: INDEX_PLANS,
    pooler: config.database.pooler,
    onError: (error) => logger.warn({ err: error }, 'a database connection broke'),
  });
  closers.add(() => database.close());
  await checkSession(database.pool, config.database.pooler);
  await migrate(database.pool);
  const installation_id = await settleInstallation(database.pool, config.installation_id);
  const api_key_file = await letFirstClientIn(config, embedded === null ? null : data_dir, database.pool);

  const sandbox = await startSandboxIfNeeded(config, data_dir, logger, closers);
  const providers = await createProviders(config, sandbox);
  const metrics = createMetrics();
  const payments = createPayments({
    pool: database.pool,
    providers,
    installation_id,
    timing: config.timing,
    retention_ms: config.retention.idempotency_h * HOUR_MS,
    auto_refund_anomalies: config.auto_refund_anomalies,
    metrics,
    logger,
    ...hooks,
  });
  const dependencies = { config, database, payments, metrics, logger };
  const app = await buildApp(dependencies);
  closers.add(() => app.close());
  // Listening comes first: it fails where the port is taken, before any job has begun to work.
  await app.listen({ host: config.http.host, port: config.http.port });
  if (config.kafka_brokers !== null) {
    // Loaded only where it is used: its client is an eighth of a second of every start.
    const { startKafka } = await import('./kafka/index.js');
    const kafka = await startKafka({ ...dependencies, brokers: config.kafka_brokers });
    // Ended after requests and jobs, so that the events of the last ones go out.
    closers.add(() => kafka.stop());
  }
  const jobs = startJobs(dependencies);
  // Requests under way and rounds under way end side by side: each may wait for the provider.
  closers.add(async () => {
    await Promise.all([app.close(), jobs.stop()]);
  });

  let stopping: Promise<void> | undefined;
  return {
    facts: {
      address: localAddress(config),
      data_dir: data_dir?.path ?? null,
      database_directory: embedded?.directory ?? null,
      api_key_file,
      has_bootstrap_key: config.bootstrap_api_key !== null,
      sandbox_url: sandbox.sandbox_url,
      default_provider: providers.default_name,
    },
    stop: () => (stopping ??= closers.close()),
    abandon: () => embedded?.abandon(),
  };
}

async function openDataDirIfNeeded(config: Config, closers: Closers): Promise<DataDir | null> {
  if (config.database.url !== null && !runsSandboxInside(config)) return null;
  const data_dir = await openDataDir(config.data_dir);
  closers.add(() => data_dir.release());
  return data_dir;
}

async function startDatabaseIfNeeded(
  config: Config,
  data_dir: DataDir | null,
  closers: Closers,
): Promise<EmbeddedPostgres | null> {
  if (config.database.url !== null || data_dir === null) return null;
  const embedded = await startEmbeddedPostgres({ data_dir: data_dir.path });
  closers.add(() => embedded.stop());
  return embedded;
}

/**
 * Makes the client `default` where there is none: with the configured key, or for an embedded database (`data_dir` is
 * given) with one that is made and kept there. @returns the file of a kept key
 */
async function letFirstClientIn(config: Config, data_dir: DataDir | null, pool: Pool): Promise<string | null> {
  if (config.bootstrap_api_key !== null) {
    await bootstrapClient(pool, config.bootstrap_api_key);
    return null;
  }
  if (data_dir === null) return null;
  const file = data_dir.file('api-key');
  // A new key would open nothing where there are clients already.
  if (!existsSync(file) && (await hasClients(pool))) return null;
  await bootstrapClient(
    pool,
    keepSecret(file, () => generateApiKey().key),
  );
  return file;
}

async function hasClients(pool: Pool): Promise<boolean> {
  const { rows } = await pool.query<{ found: boolean }>('SELECT EXISTS (SELECT FROM api_client) AS found');
  return rows[0]?.found === true;
}

interface Sandbox {
  readonly sandbox_url: string | null;
  readonly sandbox_webhook_secrets: readonly string[];
}

async function startSandboxIfNeeded(
  config: Config,
  data_dir: DataDir | null,
  logger: Logger,
  closers: Closers,
): Promise<Sandbox> {
  const secrets = config.sandbox.webhook_secrets;
  if (data_dir === null || !runsSandboxInside(config)) {
    return { sandbox_url: config.sandbox.url, sandbox_webhook_secrets: secrets };
  }
  const webhook_secret =
    secrets[0] ??
    keepSecret(data_dir.file('sandbox-webhook-secret'), () => `whsec_${randomBytes(32).toString('base64')}`);
  const simulator = await startSimulator({
    port: config.sandbox.port,
    host: '127.0.0.1',
    ledger_file: ledgerFile(data_dir.path),
    webhook_url: config.sandbox.webhook_url ?? `${localAddress(config)}/webhooks/sandbox`,
    webhook_secret,
    log: (line) => logger.info({ simulator: line }, 'sandbox'),
  });
  closers.add(() => simulator.close());
  return { sandbox_url: simulator.url, sandbox_webhook_secrets: secrets.length > 0 ? secrets : [webhook_secret] };
}

function runsSandboxInside(config: Config): boolean {
  return config.providers.includes('sandbox') && config.sandbox.url === null;
}

/** How this machine reaches us. */
function localAddress({ http: { host, port } }: Config): string {
  if (host === '0.0.0.0' || host === '::') return `http://127.0.0.1:${port}`;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** PORT=0: a free port, chosen before anybody has to be told our address. */
async function withPort(config: Config): Promise<Config> {
  if (config.http.port !== 0) return config;
  const server = createServer();
  const port = await new Promise<number>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, config.http.host, () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
  return { ...config, http: { ...config.http, port } };
}
