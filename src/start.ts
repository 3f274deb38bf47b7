import { buildApp } from './app.js';
import { type Closers, startOrUndo } from './closers.js';
import type { Config } from './config.js';
import { openDatabase } from './database/database.js';
import { INDEX_PLANS } from './database/session.js';
import {
  layFoundation,
  prepareDatabase,
  type Service,
  startFacts,
  startSandboxIfNeeded,
  withPort,
} from './foundation.js';
import { startJobs } from './jobs/index.js';
import type { Logger } from './logger.js';
import { createMetrics, type Metrics } from './metrics.js';
import { createPayments, type PaymentsContext, type StepHook } from './payments/context.js';
import { createProviders } from './providers/registry.js';

const HOUR_MS = 60 * 60_000;

/** What the crash matrix puts in; main.ts passes nothing, so that no setting can make production stop at a step. */
export interface StartHooks {
  readonly atStep?: StepHook;
}

/** What is different where several processes serve. */
export interface WorkerPart {
  /** True in one of them. */
  readonly runs_jobs: boolean;
  readonly metrics: Metrics;
  /** The metrics of all of them. */
  readonly collectMetrics: () => Promise<string>;
}

/**
 * Starts everything that the configuration asks for, from the database up. When a part fails to start, those that
 * have are ended again.
 * @throws Error with a text for people
 */
export async function startService(
  given: Config,
  logger: Logger,
  hooks: StartHooks = {},
  worker?: WorkerPart,
): Promise<Service> {
  const config = await withPort(given);
  return startOrUndo(logger, (closers) => startAll(config, logger, closers, hooks, worker));
}

async function startAll(
  config: Config,
  logger: Logger,
  closers: Closers,
  hooks: StartHooks,
  worker: WorkerPart | undefined,
): Promise<Service> {
  const foundation = await layFoundation(config, closers);
  const database = openDatabase(foundation.database_url, {
    pool_size: config.database.pool_size,
    settings: INDEX_PLANS,
    pooler: config.database.pooler,
    onError: (error) => logger.warn({ err: error }, 'a database connection broke'),
  });
  closers.add(() => database.close());
  const { installation_id, api_key_file } = await prepareDatabase(database.pool, config, foundation);

  const sandbox = await startSandboxIfNeeded(config, foundation.data_dir, logger, closers);
  const metrics = worker?.metrics ?? createMetrics();
  const payments = createPayments({
    pool: database.pool,
    providers: await createProviders(config, sandbox),
    installation_id,
    timing: config.timing,
    retention_ms: config.retention.idempotency_h * HOUR_MS,
    auto_refund_anomalies: config.auto_refund_anomalies,
    metrics,
    logger,
    ...hooks,
  });
  const dependencies = { config, database, payments, metrics, logger };
  const app = await buildApp({ ...dependencies, collectMetrics: worker?.collectMetrics });
  closers.add(() => app.close());
  // Listening comes first: it fails where the port is taken, before any job has begun to work.
  await app.listen({ host: config.http.host, port: config.http.port });
  if (worker?.runs_jobs !== false) {
    const stopJobs = await startBackground(dependencies, closers);
    // Requests under way and rounds under way end side by side: each may wait for the provider.
    closers.add(async () => {
      await Promise.all([app.close(), stopJobs()]);
    });
  }

  let stopping: Promise<void> | undefined;
  const { sandbox_url } = sandbox;
  return {
    facts: startFacts(config, foundation, { api_key_file, sandbox_url }),
    stop: () => (stopping ??= closers.close()),
    abandon: () => foundation.embedded?.abandon(),
  };
}

interface BackgroundDependencies {
  readonly config: Config;
  readonly database: ReturnType<typeof openDatabase>;
  readonly payments: PaymentsContext;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** What runs beside the requests. @returns how to stop the jobs; Kafka ends with the closers */
async function startBackground(dependencies: BackgroundDependencies, closers: Closers): Promise<() => Promise<void>> {
  const { kafka_brokers: brokers } = dependencies.config;
  if (brokers !== null) {
    // Loaded only where it is used: its client is an eighth of a second of every start.
    const { startKafka } = await import('./kafka/index.js');
    const kafka = await startKafka({ ...dependencies, brokers });
    // Ended after requests and jobs, so that the events of the last ones go out.
    closers.add(() => kafka.stop());
  }
  const jobs = startJobs(dependencies);
  return () => jobs.stop();
}
