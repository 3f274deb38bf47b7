import { type Config, ConfigError, configWarnings, readConfig } from './config.js';
import { createLogger, type Logger } from './logger.js';
import type { Service } from './foundation.js';
import { startService } from './start.js';
import { welcomeText } from './welcome.js';

/** What is made here is for this user only. */
const UMASK = 0o077;

async function main(): Promise<void> {
  process.umask(UMASK);
  // Whoever reads our output may go away first; that ends nothing.
  process.stdout.on('error', () => undefined);
  process.stderr.on('error', () => undefined);
  const config = configOrRefuse();
  const logger = createLogger(config.log_level);
  const starting = startService(config, logger);
  endOnSignals(starting, config, logger);
  let service: Service;
  try {
    service = await starting;
  } catch (error) {
    logger.debug({ err: error }, 'start failed');
    refuse(error);
  }
  for (const warning of configWarnings(config)) logger.warn(warning);
  logger.info({ address: service.facts.address }, 'started');
  process.stdout.write(`${welcomeText(service.facts)}\n`);
}

function configOrRefuse(): Config {
  try {
    return readConfig();
  } catch (error) {
    refuse(error);
  }
}

/**
 * SIGTERM, SIGINT and SIGHUP drain; a second one, as Ctrl-C under npm sends it, does not cut that short. What nobody
 * caught drains as well: charges under way still get their answer.
 */
function endOnSignals(starting: Promise<Service>, config: Config, logger: Logger): void {
  let ending = false;
  const end = (reason: Record<string, unknown>, exit_code: number): void => {
    if (ending) return;
    ending = true;
    logger.info({ ...reason, limit_ms: config.timing.shutdown_timeout_ms }, 'draining');
    drain(starting, config.timing.shutdown_timeout_ms).then(
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
