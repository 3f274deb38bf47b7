import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import type { Pooler } from '../config-variables.js';
import { DATABASE_LIMITS } from './limits.js';
import { inTransaction, sqlState } from './transaction.js';

/**
 * For the service's connections: arrays through `unnest` are guessed at 10 or 1,000
 * rows, and a plan that reads a whole table for them is ruinous.
 */
export const INDEX_PLANS = { enable_hashjoin: 'off', enable_mergejoin: 'off', enable_seqscan: 'off' } as const;

/** The server's part of our time limits, in milliseconds. */
const SERVER_LIMITS = {
  lock_timeout: DATABASE_LIMITS.lock_ms,
  statement_timeout: DATABASE_LIMITS.statement_ms,
  idle_in_transaction_session_timeout: DATABASE_LIMITS.idle_in_transaction_ms,
} as const;

/** What every session of the service has to have, however it gets it. */
export const SERVICE_SETTINGS: Readonly<Record<string, string>> = {
  ...INDEX_PLANS,
  ...Object.fromEntries(Object.entries(SERVER_LIMITS).map(([name, limit_ms]) => [name, String(limit_ms)])),
};

/** The sessions are not what this service counts on; says what is wrong and the exact remedy. */
export class SessionError extends Error {
  override readonly name = 'SessionError';
}

/**
 * What a pool tells each new connection at its start. Nothing through a pooler: the session behind it is everybody's,
 * and PgBouncer refuses connections that ask for settings which it does not know.
 */
export function startupSettings(pooler: Pooler, settings: Readonly<Record<string, string>> = {}): pg.ClientConfig {
  if (pooler !== 'none') return {};
  const options = Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`);
  return { ...SERVER_LIMITS, ...(options.length === 0 ? {} : { options: options.join(' ') }) };
}

/**
 * Looks at one connection of a pool before any work: that it leads where DATABASE_POOLER says, and that its session has
 * our plans and limits. A wrong set-up would otherwise show as statements that fail now and then, or run for ever.
 * @throws SessionError, or the database's own error
 */
export async function checkSession(pool: pg.Pool, pooler: Pooler): Promise<void> {
  const session = await look(pool).catch((error: unknown) => {
    throw refusedByPooler(error) ?? error;
  });
  if (pooler === 'none' && !session.is_direct) throw new SessionError(`DATABASE_URL leads through ${A_POOLER}`);
  const wrong = Object.entries(SERVICE_SETTINGS).filter(([name, value]) => !fits(session.settings.get(name), value));
  if (wrong.length > 0) throw new SessionError(settingsText(session, wrong, pooler));
  if (pooler === 'transaction-prepared') await checkNames(pool);
}

interface Session {
  /** Nobody in between answers in the server's place. */
  readonly is_direct: boolean;
  readonly settings: ReadonlyMap<string, string>;
  /** Quoted for SQL. */
  readonly role: string;
  readonly database: string;
}

/** In a transaction, which pooling by statement refuses. */
function look(pool: pg.Pool): Promise<Session> {
  return inTransaction(pool, async (tx) => {
    const { rows } = await tx.query<{ name: string; setting: string; pid: number; role: string; database: string }>(
      `SELECT name, setting, pg_backend_pid() AS pid, quote_ident(session_user) AS role,
              quote_ident(current_database()) AS database
       FROM pg_settings WHERE name = ANY ($1)`,
      [Object.keys(SERVICE_SETTINGS)],
    );
    const [{ pid, role, database } = { pid: null, role: '', database: '' }] = rows;
    const settings = new Map(rows.map(({ name, setting }) => [name, setting]));
    return { is_direct: toldPid(tx) === pid, settings, role, database };
  });
}

/** The process that greeted us, for cancel requests. PgBouncer makes up a number of its own. */
function toldPid(client: pg.PoolClient): unknown {
  return 'processID' in client ? client.processID : undefined;
}

/** A limit may be tighter than ours; none at all is 0. */
function fits(setting: string | undefined, value: string): boolean {
  if (value === 'off') return setting === 'off';
  const limit_ms = Number(setting);
  return limit_ms > 0 && limit_ms <= Number(value);
}

const A_POOLER =
  'a connection pooler such as PgBouncer, not straight to PostgreSQL. Set DATABASE_POOLER=transaction, or ' +
  'DATABASE_POOLER=transaction-prepared where it keeps prepared statements (docs/pgbouncer.md)';

/** PgBouncer says this to a connection that asks for settings. */
function refusedByPooler(error: unknown): SessionError | undefined {
  if (!(error instanceof Error) || !error.message.startsWith('unsupported startup parameter')) return undefined;
  return new SessionError(`DATABASE_URL leads through ${A_POOLER}. It said: ${error.message}`, { cause: error });
}

function settingsText(session: Session, wrong: readonly [string, string][], pooler: Pooler): string {
  const found = wrong.map(([name, value]) => {
    const wanted = value === 'off' ? 'off' : `1 to ${value} (ms)`;
    return `${name} is ${session.settings.get(name) ?? 'unknown'} and has to be ${wanted}`;
  });
  const statements = wrong.map(
    ([name, value]) => `ALTER ROLE ${session.role} IN DATABASE ${session.database} SET ${name} = ${value};`,
  );
  const afterwards =
    pooler === 'none'
      ? 'Or take out of DATABASE_URL what sets them otherwise'
      : "Then RECONNECT in the pooler's console: sessions that are open keep what they had";
  return `The database's sessions are not as this service needs them: ${found.join(', ')}. Run: ${statements.join(' ')} ${afterwards}`;
}

const PROBES = 3;
/** The statement is there already, or is not there: another session than the one that we prepared it in. */
const LOST_NAME_SQLSTATES = new Set(['42P05', '26000']);

/** Two connections use one name, as two instances do. Told apart by the pooler, or by sessions of their own, both work. */
async function checkNames(pool: pg.Pool): Promise<void> {
  const clients = await Promise.all([pool.connect(), pool.connect()]);
  try {
    for (let probe = 0; probe < PROBES; probe += 1) {
      const statement = { name: `oncepay_probe_${randomUUID()}`, text: 'SELECT pg_backend_pid()', values: [] };
      for (const client of [...clients, ...clients]) await client.query(statement);
    }
  } catch (error) {
    if (!LOST_NAME_SQLSTATES.has(sqlState(error) ?? '')) throw error;
    throw new SessionError(
      'DATABASE_POOLER is transaction-prepared, but the pooler does not keep prepared statements. Set ' +
        'max_prepared_statements = 200 in pgbouncer.ini (PgBouncer 1.21 or later), or DATABASE_POOLER=transaction. ' +
        `It said: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  } finally {
    for (const client of clients) client.release();
  }
}
