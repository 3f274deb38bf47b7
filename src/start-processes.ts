import { startOrUndo } from './closers.js';
import type { Config } from './config.js';
import { openPool } from './database/database.js';
import { INDEX_PLANS } from './database/session.js';
import {
  type Foundation,
  layFoundation,
  prepareDatabase,
  type Sandbox,
  type Service,
  startFacts,
  startSandboxIfNeeded,
  withPort,
} from './foundation.js';
import type { Logger } from './logger.js';
import { Workers } from './processes/workers.js';

/** What is looked at in the database before anybody serves takes two. */
const PREPARING_CONNECTIONS = 2;

/**
 * Starts what there is only one of in this process, and PROCESSES others that serve on it (docs/processes.md). This one
 * then does nothing but hand out connections and keep the others alive.
 * @throws Error with a text for people
 */
export async function startProcesses(given: Config, logger: Logger): Promise<Service> {
  const config = await withPort(given);
  return startOrUndo(logger, async (closers) => {
    const foundation = await layFoundation(config, closers);
    const { installation_id, api_key_file } = await prepare(config, foundation);
    const sandbox = await startSandboxIfNeeded(config, foundation.data_dir, logger, closers);
    const workers = new Workers({
      count: config.processes,
      config: workerConfig(config, foundation, sandbox, installation_id),
      logger,
    });
    closers.add(() => workers.stop());
    await workers.start();
    let stopping: Promise<void> | undefined;
    return {
      facts: startFacts(config, foundation, { api_key_file, sandbox_url: sandbox.sandbox_url }),
      stop: () => (stopping ??= closers.close()),
      abandon: () => {
        workers.kill();
        foundation.embedded?.abandon();
      },
    };
  });
}

async function prepare(config: Config, foundation: Foundation): ReturnType<typeof prepareDatabase> {
  const pool = openPool(foundation.database_url, {
    pool_size: PREPARING_CONNECTIONS,
    settings: INDEX_PLANS,
    pooler: config.database.pooler,
  });
  try {
    return await prepareDatabase(pool, config, foundation);
  } finally {
    await pool.end();
  }
}

/** A worker is told where everything is, so to it nothing is left to be embedded. */
function workerConfig(
  config: Config,
  { database_url }: Foundation,
  { sandbox_url, sandbox_webhook_secrets }: Sandbox,
  installation_id: string,
): Config {
  return {
    ...config,
    database: { ...config.database, url: database_url },
    installation_id,
    bootstrap_api_key: null,
    sandbox: { ...config.sandbox, url: sandbox_url, webhook_secrets: sandbox_webhook_secrets },
  };
}
