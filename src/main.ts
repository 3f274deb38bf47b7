import { type Config, ConfigError, configWarnings, readConfig } from './config.js';
import type { Service } from './foundation.js';
import { createLogger, type Logger, sharedOutput } from './logger.js';
import { createMetrics } from './metrics.js';
import { WORKER_ARGUMENT } from './processes/messages.js';
import type { WorkerPart } from './start.js';
import { welcomeText } from './welcome.js';

/** What is made here is for this user only. */
const UMASK = 0o077;

async function main(): Promise<void> {
  process.umask(UMASK);
  // Whoever reads our output may go away first; that ends nothing.
  process.stdout.on('error', () => undefined);
  process.stderr.on('error', () => undefined);
  await (process.argv[2] === WORKER_ARGUMENT ? runWorker() : runService());
}

async function runService(): Promise<void> {
  const config = configOrRefuse();
  const is_alone = config.processes === 1;
  const logger = createLogger(config.log_level, is_alone ? undefined : sharedOutput());
  const starting = is_alone ? startOne(config, logger) : startSeveral(config, logger);
  endOnSignals(starting, config, logger);
  const service = await startedOr(starting, logger, refuse);
  for (const warning of configWarnings(config)) logger.warn(warning);
  logger.info({ address: service.facts.address }, 'started');
  process.stdout.write(`${welcomeText(service.facts)}\n`);
}

/** Loaded where it is used: the parent of workers has no use for the app, and who is alone none for workers. */
async function startOne(config: Config, logger: Logger, worker?: WorkerPart): Promise<Service> {
  const { startService } = await import('./start.js');
  return startService(config, logger, {}, worker);
}

async function startSeveral(config: Config, logger: Logger): Promise<Service> {
  const { startProcesses } = await import('./start-processes.js');
  return startProcesses(config, logger);
}

/** One of the PROCESSES, started by the one that was started by hand. */
async function runWorker(): Promise<void> {
  const { ParentLink } = await import('./processes/parent-link.js');
  const metrics = createMetrics();
  const { link, order } = await ParentLink.join(metrics.registry).catch(refuse);
  const { config } = order;
  const logger = createLogger(config.log_level, sharedOutput()).child({ worker: order.number });
  const collectMetrics = (): Promise<string> => link.totalMetrics();
  const starting = startOne(config, logger, { runs_jobs: order.runs_jobs, metrics, collectMetrics });
  const end = endOnSignals(starting, config, logger, () => link.leave());
  link.onParentGone(() => end({ event: 'the parent is gone' }, 1));
  await startedOr(starting, logger, async (error) => {
    await link.failed(describe(error));
    process.exit(1);
  });
  link.ready();
}

async function startedOr(
  starting: Promise<Service>,
  logger: Logger,
  giveUp: (error: unknown) => Promise<never> | never,
): Promise<Service> {
  try {
    return await starting;
  } catch (error) {
    logger.debug({ err: error }, 'start failed');
    return giveUp(error);
  }
}

function configOrRefuse(): Config {
  try {
    return readConfig();
  } catch (error) {
    refuse(error);
  }
}

/** Drains, then ends this process with the code. Only the first counts. */
type End = (reason: Readonly<Record<string, unknown>>, exit_code: number) => void;

/**
 * SIGTERM, SIGINT and SIGHUP drain; a second one, as Ctrl-C under npm sends it, does not cut that short. What nobody
 * caught drains as well: charges under way still get their answer.
 */
function endOnSignals(
  starting: Promise<Service>,
  config: Config,
  logger: Logger,
  atEnd: () => Promise<void> = () => Promise.resolve(),
): End {
  let ending = false;
  const end: End = (reason, exit_code) => {
    if (ending) return;
    ending = true;
    logger.info({ ...reason, limit_ms: config.timing.shutdown_timeout_ms }, 'draining');
    const drained = drain(starting, config.timing.shutdown_timeout_ms).then(atEnd);
    drained.then(
      () => {
        logger.info('stopped');
        process.exit(exit_code);
      },
      (error: unknown) => {
        logger.error({ err: error }, 'the end was not clean');
        process.exit(1);
      },
    );
  };
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => end({ signal }, 0));
  for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
    process.on(event, (error: unknown) => {
      logger.fatal({ err: error }, event);
      end({ event }, 1);
    });
  }
  return end;
}

async function drain(starting: Promise<Service>, limit_ms: number): Promise<void> {
  let service: Service | undefined;
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      service?.abandon();
      reject(new Error(`The drain took longer than SHUTDOWN_TIMEOUT_MS, ${limit_ms} ms`));
    }, limit_ms);
  });
  const stopped = starting.then((started) => {
    service = started;
    return started.stop();
  });
  try {
    await Promise.race([stopped, limit]);
  } finally {
    clearTimeout(timer);
  }
}

function refuse(error: unknown): never {
  const kind = error instanceof ConfigError ? 'configuration' : 'start';
  process.stderr.write(`oncepay: ${kind} failed: ${describe(error)}\n`);
  process.exit(1);
}

/** One line that says what is wrong. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Node's own for a name with several addresses: the message is empty, each address has its own reason.
  if (error instanceof AggregateError) return error.errors.map(describe).join('; ');
  if ('code' in error && error.code === 'EADDRINUSE') {
    return `PORT: ${error.message}. Another process listens there: stop it, or set PORT (or SANDBOX_PORT)`;
  }
  return error.message.replaceAll(/\s*\n\s*/g, ' ');
}

await main();
