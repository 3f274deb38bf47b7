import { createHash } from 'node:crypto';
import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import type { Pooler } from '../config-variables.js';
import { PrismaClient } from './generated/client.js';
import { DATABASE_LIMITS } from './limits.js';
import { startupSettings } from './session.js';
import { UnnamedClient } from './unnamed-client.js';

/** One pool for hand-written SQL and for Prisma. */
export interface Database {
  /** `int8` comes out as bigint, `timestamptz` as Date, `json` parsed. */
  readonly pool: pg.Pool;
  readonly prisma: PrismaClient;
  /** Where LISTEN hears something; null: nowhere, since a pooler's sessions are not ours to wait on. */
  readonly listen_url: string | null;
  /** Waits for the connections in use. Safe to call again. */
  close(): Promise<void>;
}

export interface PoolOptions {
  readonly pool_size: number;
  /** Told of every connection that breaks while nobody's statement is on it. */
  readonly onError?: (error: Error) => void;
  /** Server settings for every connection of the pool, e.g. `INDEX_PLANS`. Through a pooler the database has to have them. */
  readonly settings?: Readonly<Record<string, string>>;
  /** What the address leads through; nothing by default. */
  readonly pooler?: Pooler;
}

/**
 * Opens a pool and the Prisma client over it. Connects at the first use.
 * @param url `postgres://…`
 */
export function openDatabase(url: string, options: PoolOptions): Database {
  const pool = openPool(url, options);
  const adapter = new PrismaPg(pool, {
    statementNameGenerator: statementNames(),
    ...(options.onError === undefined ? {} : { onConnectionError: options.onError }),
  });
  const prisma = new PrismaClient({ adapter });
  let closing: Promise<void> | undefined;
  return {
    pool,
    prisma,
    listen_url: (options.pooler ?? 'none') === 'none' ? url : null,
    close: () => (closing ??= prisma.$disconnect().then(() => pool.end())),
  };
}

/** A pool alone, with our limits. A broken idle connection never ends the process; `onError` hears of it. */
export function openPool(url: string, options: PoolOptions): pg.Pool {
  const { pooler = 'none' } = options;
  const pool = new pg.Pool({
    connectionString: url,
    application_name: 'oncepay',
    max: options.pool_size,
    connectionTimeoutMillis: DATABASE_LIMITS.connect_ms,
    idleTimeoutMillis: DATABASE_LIMITS.idle_connection_ms,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    query_timeout: DATABASE_LIMITS.answer_ms,
    types: { getTypeParser },
    ...startupSettings(pooler, options.settings),
    ...(pooler === 'transaction' ? { Client: UnnamedClient } : {}),
  });
  pool.on('error', (error) => {
    // pg hangs the whole client on it, with every statement's text: nothing for a log.
    Reflect.deleteProperty(error, 'client');
    // While the pool ends, the server may be the first to close.
    if (!pool.ending) options.onError?.(error);
  });
  // The pool listens only to connections that nobody holds. One that breaks while it is held rejects the statement under
  // way and also emits 'error', which without a listener would end the process.
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

const INT8_OID = 20;
const INT8_ARRAY_OID = 1016;
const builtIn: { getTypeParser: (oid: number, format?: 'text' | 'binary') => (value: string) => unknown } = pg.types;

/** Exact integers. Prisma passes parsers of its own with each statement and is not touched by this. */
function getTypeParser(oid: number, format?: 'text' | 'binary'): (value: string) => unknown {
  if (format !== 'binary' && oid === INT8_OID) return BigInt;
  if (format !== 'binary' && oid === INT8_ARRAY_OID) return parseInt8Array;
  return builtIn.getTypeParser(oid, format);
}

/** One dimension, as all of ours have: `{1,NULL,3}`. */
function parseInt8Array(text: string): (bigint | null)[] {
  if (text === '{}') return [];
  return text
    .slice(1, -1)
    .split(',')
    .map((item) => (item === 'NULL' ? null : BigInt(item)));
}

/** How many of Prisma's statements get a name. Each named one stays prepared on every connection. */
const NAMED_STATEMENTS_MAX = 500;

/**
 * Names Prisma's statements by their text, so that each is parsed and planned once per connection: more than twice as
 * fast. Texts vary without bound (lists of values), so those beyond the first few hundred stay unnamed.
 */
function statementNames(): (query: { readonly sql: string }) => string {
  const names = new Map<string, string>();
  return ({ sql }) => {
    const known = names.get(sql);
    if (known !== undefined) return known;
    if (names.size >= NAMED_STATEMENTS_MAX) return '';
    const name = `prisma_${createHash('sha256').update(sql).digest('hex').slice(0, 32)}`;
    names.set(sql, name);
    return name;
  };
}
