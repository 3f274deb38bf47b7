import { existsSync } from 'node:fs';
import type { z } from 'zod';
import { LEASE_MAX_MS, VARIABLES } from './config-variables.js';
import type { Pooler, Variable, VariableName } from './config-variables.js';
import type { LogLevel } from './logger.js';

/** The whole configuration. Nothing else reads the environment. Null: unset, and what that means is in the table. */
export interface Config {
  readonly http: { readonly host: string; readonly port: number };
  /** How many serve on that port; 1: this one, and no other is started. */
  readonly processes: number;
  readonly database: { readonly url: string | null; readonly pool_size: number; readonly pooler: Pooler };
  readonly data_dir: string | null;
  readonly installation_id: string | null;
  readonly bootstrap_api_key: string | null;
  /** At least one; the first is the default. */
  readonly providers: readonly string[];
  readonly sandbox: {
    readonly url: string | null;
    readonly port: number;
    readonly webhook_url: string | null;
    /** Newest first; empty: unset. */
    readonly webhook_secrets: readonly string[];
  };
  readonly stripe: {
    readonly secret_key: string | null;
    readonly api_base: string | null;
    readonly webhook_secrets: readonly string[];
  };
  readonly kafka_brokers: readonly string[] | null;
  readonly retention: { readonly idempotency_h: number; readonly processed_event_h: number };
  readonly timing: Timing;
  readonly auto_refund_anomalies: boolean;
  /** 0: no limit. */
  readonly rate_limit_per_second: number;
  readonly log_level: LogLevel;
}

interface Timing {
  readonly lease_ms: number;
  readonly provider_timeout_ms: number;
  readonly recovery_interval_ms: number;
  readonly reconcile_interval_ms: number;
  readonly shutdown_timeout_ms: number;
}

/** A variable is wrong; the message names it and says what was expected, and never holds a secret. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  constructor(
    readonly variable: VariableName,
    problem: string,
  ) {
    super(`${variable}: ${problem}`);
  }
}

type Value<N extends VariableName> = z.output<(typeof VARIABLES)[N]['schema']>;

/** As every command reads it: the environment, and a file `.env` in the working directory for what that leaves out. */
export function readConfig(): Config {
  if (existsSync(ENV_FILE)) process.loadEnvFile(ENV_FILE);
  return parseConfig(process.env);
}

const ENV_FILE = '.env';

/**
 * Reads every variable once. A variable set to nothing counts as unset, but a secret set to nothing is refused: it is
 * what a missing secret store leaves behind.
 * @throws ConfigError
 */
export function parseConfig(env: NodeJS.ProcessEnv): Config {
  const read = <N extends VariableName>(name: N): Value<N> | null => readVariable(env, name);
  const value = <N extends VariableName>(name: N): Value<N> => readOrDefault(env, name);
  const config: Config = {
    http: { host: value('HOST'), port: value('PORT') },
    processes: value('PROCESSES'),
    database: {
      url: read('DATABASE_URL'),
      pool_size: value('DATABASE_POOL_SIZE'),
      pooler: value('DATABASE_POOLER'),
    },
    data_dir: read('DATA_DIR'),
    installation_id: read('INSTALLATION_ID'),
    bootstrap_api_key: read('BOOTSTRAP_API_KEY'),
    providers: value('PROVIDERS'),
    sandbox: {
      url: read('SANDBOX_URL'),
      port: value('SANDBOX_PORT'),
      webhook_url: read('SANDBOX_WEBHOOK_URL'),
      webhook_secrets: read('SANDBOX_WEBHOOK_SECRETS') ?? [],
    },
    stripe: {
      secret_key: read('STRIPE_SECRET_KEY'),
      api_base: read('STRIPE_API_BASE'),
      webhook_secrets: read('STRIPE_WEBHOOK_SECRETS') ?? [],
    },
    kafka_brokers: read('KAFKA_BROKERS'),
    retention: {
      idempotency_h: value('IDEMPOTENCY_RETENTION_HOURS'),
      processed_event_h: value('PROCESSED_EVENT_RETENTION_HOURS'),
    },
    timing: readTiming(env),
    auto_refund_anomalies: value('AUTO_REFUND_ANOMALIES') === 'true',
    rate_limit_per_second: value('RATE_LIMIT_PER_SECOND'),
    log_level: value('LOG_LEVEL'),
  };
  checkPooler(config);
  checkStripe(config);
  return config;
}

/** Of its 100; the rest is for the command lines and for who looks at it. */
const EMBEDDED_CONNECTIONS = 90;

/** What is allowed and yet deserves a line in the log at start. */
export function configWarnings(config: Config): string[] {
  const warnings: string[] = [];
  if (config.providers.includes('instant')) {
    warnings.push(
      'PROVIDERS has instant: it moves no money and remembers nothing. For benchmarks only, never for real payments',
    );
  }
  if (
    config.providers.includes('sandbox') &&
    config.sandbox.url !== null &&
    config.sandbox.webhook_secrets.length === 0
  ) {
    warnings.push(
      'SANDBOX_URL is set without SANDBOX_WEBHOOK_SECRETS: webhooks of the sandbox are refused. ' +
        'Set it to the secret that the simulator signs with',
    );
  }
  const connections = config.processes * (config.database.pool_size + 1);
  if (config.processes > 1 && config.database.url === null && connections > EMBEDDED_CONNECTIONS) {
    warnings.push(
      `PROCESSES and DATABASE_POOL_SIZE may need ${connections} connections; the embedded PostgreSQL has ` +
        `${EMBEDDED_CONNECTIONS} for them. Take a smaller DATABASE_POOL_SIZE: it is for each process`,
    );
  }
  if (config.bootstrap_api_key !== null && config.bootstrap_api_key.length < 32) {
    warnings.push('BOOTSTRAP_API_KEY is shorter than 32 characters: take a random one for anything but tests');
  }
  return warnings;
}

function readVariable<N extends VariableName>(env: NodeJS.ProcessEnv, name: N): Value<N> | null {
  const variable: Variable<unknown> = VARIABLES[name];
  const text = env[name];
  if (text === undefined) return null;
  if (text === '' && variable.secret !== true) return null;
  return parse(name, text);
}

function readOrDefault<N extends VariableName>(env: NodeJS.ProcessEnv, name: N): Value<N> {
  const read = readVariable(env, name);
  if (read !== null) return read;
  const { unset }: Variable<unknown> = VARIABLES[name];
  if (!('value' in unset)) throw new Error(`${name} has no default value`);
  return parse(name, unset.value);
}

function parse<N extends VariableName>(name: N, text: string): Value<N> {
  const variable: Variable<unknown> = VARIABLES[name];
  const result = variable.schema.safeParse(text);
  if (result.success) return result.data as Value<N>;
  if (text === '') throw new ConfigError(name, `is set to nothing; expected ${variable.expected}`);
  const got = variable.secret === true ? 'the value set (not shown)' : JSON.stringify(text.slice(0, 100));
  throw new ConfigError(name, `expected ${variable.expected}; got ${got}`);
}

const PROVIDER_TIMEOUT_MAX_MS = 10_000;
const LEASE_DEFAULT_MS = 20_000;
/** What is left of a lease for waiting and settling when it follows a short provider time-out. */
const LEASE_FOLLOWING_MIN_MS = 1_000;
/** The share of a lease that the provider call may take; the rest is for the queue before and the settling after it. */
const PROVIDER_SHARE = 0.9;
/** For the jobs' rounds, the pools and the embedded database after the last charge. */
const SHUTDOWN_REST_MS = 15_000;

/** Queue + provider call (all tries together) + settle < lease, and the drain outlives the provider call. */
function readTiming(env: NodeJS.ProcessEnv): Timing {
  const lease = readVariable(env, 'LEASE_MS');
  const timeout = readVariable(env, 'PROVIDER_TIMEOUT_MS');
  const lease_ms =
    lease ??
    (timeout === null ? LEASE_DEFAULT_MS : Math.min(LEASE_MAX_MS, Math.max(LEASE_FOLLOWING_MIN_MS, 2 * timeout)));
  const provider_timeout_ms = timeout ?? Math.min(PROVIDER_TIMEOUT_MAX_MS, Math.floor(lease_ms / 2));
  if (provider_timeout_ms > PROVIDER_SHARE * lease_ms) {
    throw new ConfigError(
      'PROVIDER_TIMEOUT_MS',
      `expected at most ${Math.floor(PROVIDER_SHARE * lease_ms)} (0.9 × LEASE_MS, which is ${lease_ms}); got ${provider_timeout_ms}`,
    );
  }
  const shutdown_timeout_ms = readVariable(env, 'SHUTDOWN_TIMEOUT_MS') ?? provider_timeout_ms + SHUTDOWN_REST_MS;
  if (shutdown_timeout_ms <= provider_timeout_ms) {
    throw new ConfigError(
      'SHUTDOWN_TIMEOUT_MS',
      `expected more than PROVIDER_TIMEOUT_MS, which is ${provider_timeout_ms}; got ${shutdown_timeout_ms}`,
    );
  }
  return {
    lease_ms,
    provider_timeout_ms,
    recovery_interval_ms: readOrDefault(env, 'RECOVERY_INTERVAL_MS'),
    reconcile_interval_ms: readOrDefault(env, 'RECONCILE_INTERVAL_MS'),
    shutdown_timeout_ms,
  };
}

function checkPooler({ database: { url, pooler } }: Config): void {
  if (pooler === 'none' || url !== null) return;
  throw new ConfigError('DATABASE_POOLER', `is ${pooler}, but DATABASE_URL is unset; set it to the pooler's address`);
}

function checkStripe(config: Config): void {
  if (!config.providers.includes('stripe')) return;
  if (config.stripe.secret_key === null) {
    throw new ConfigError(
      'STRIPE_SECRET_KEY',
      'is needed because PROVIDERS has stripe; set it to the key (sk_… or rk_…)',
    );
  }
  if (config.stripe.webhook_secrets.length === 0) {
    throw new ConfigError(
      'STRIPE_WEBHOOK_SECRETS',
      "is needed because PROVIDERS has stripe; set it to the signing secret (whsec_…) of Stripe's webhook endpoint",
    );
  }
}
