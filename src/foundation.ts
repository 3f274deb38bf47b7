import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Pool } from 'pg';
import { generateApiKey } from './clients/api-key.js';
import { bootstrapClient } from './clients/bootstrap.js';
import type { Closers } from './closers.js';
import type { Config } from './config.js';
import { openDataDir, type DataDir } from './database/data-dir.js';
import { startEmbeddedPostgres, type EmbeddedPostgres } from './database/embedded/server.js';
import { migrate } from './database/migrate.js';
import { keepSecret } from './database/secret-file.js';
import { checkSession } from './database/session.js';
import type { Logger } from './logger.js';
import { ledgerFile, startSimulator } from './simulator/server.js';
import { settleInstallation } from './store/installation.js';

/** A running service. */
export interface Service {
  readonly facts: StartFacts;
  /** Drains: in-flight requests finish, jobs stop, then what they stand on, the embedded database last. */
  stop(): Promise<void>;
  /** For a drain that takes too long: what would go on without this process is told to end. Does not wait. */
  abandon(): void;
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

/** What a service stands on and there is only one of, however many processes serve. */
export interface Foundation {
  /** Null where nothing of ours is kept on this machine. */
  readonly data_dir: DataDir | null;
  readonly embedded: EmbeddedPostgres | null;
  readonly database_url: string;
}

export async function layFoundation(config: Config, closers: Closers): Promise<Foundation> {
  const data_dir = await openDataDirIfNeeded(config, closers);
  const embedded = await startDatabaseIfNeeded(config, data_dir, closers);
  const database_url = config.database.url ?? embedded?.url;
  if (database_url === undefined) throw new Error('There is neither a DATABASE_URL nor an embedded database');
  return { data_dir, embedded, database_url };
}

/** Migrations, the installation's id, the first client. Safe where several do it at once. */
export async function prepareDatabase(
  pool: Pool,
  config: Config,
  { embedded, data_dir }: Foundation,
): Promise<{ readonly installation_id: string; readonly api_key_file: string | null }> {
  await checkSession(pool, config.database.pooler);
  await migrate(pool);
  const installation_id = await settleInstallation(pool, config.installation_id);
  return { installation_id, api_key_file: await letFirstClientIn(config, embedded === null ? null : data_dir, pool) };
}

export function startFacts(
  config: Config,
  { data_dir, embedded }: Foundation,
  more: Pick<StartFacts, 'api_key_file' | 'sandbox_url'>,
): StartFacts {
  return {
    address: localAddress(config),
    data_dir: data_dir?.path ?? null,
    database_directory: embedded?.directory ?? null,
    has_bootstrap_key: config.bootstrap_api_key !== null,
    default_provider: config.providers[0] ?? '',
    ...more,
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

export interface Sandbox {
  readonly sandbox_url: string | null;
  readonly sandbox_webhook_secrets: readonly string[];
}

export async function startSandboxIfNeeded(
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
export async function withPort(config: Config): Promise<Config> {
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
