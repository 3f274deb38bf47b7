import { QueueFull } from './batcher.js';

/**
 * SQLSTATEs that say "not now" rather than "not this": connection exceptions (class 08), too many connections and
 * other lacks of resources (53), and a server that is going down, starting, or was told to end our session (57P0x).
 * 57014 and 55P03 are our own limits (statement_timeout, lock_timeout), 25P03 idle_in_transaction_session_timeout.
 */
const UNAVAILABLE_SQLSTATE = /^(?:08\w{3}|53\w{3}|57P0[1-5]|57014|55P03|25P03|25006)$/;

/** What Node says about a connection that can't be had or was lost. */
const UNAVAILABLE_NODE_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ENOENT', // a unix socket that is gone
]);

/** Prisma: can't reach, timed out, closed, no connection from the pool in time, transaction not started in time. */
const UNAVAILABLE_PRISMA_CODES = new Set(['P1001', 'P1002', 'P1008', 'P1017', 'P2024', 'P2028', 'P2037']);

/** pg and its pool say these without any code. */
const UNAVAILABLE_MESSAGES = [
  'timeout exceeded when trying to connect',
  'Connection terminated',
  'Client has encountered a connection error and is not queryable',
  'Query read timeout',
  'Cannot use a pool after calling end on the pool',
  'Client was closed and is not queryable',
];

/**
 * Whether an error means that the database can't be used for now, so that the answer is 503 and a retry may help.
 * Looks through what wraps it: causes, Prisma's driver adapter errors, an AggregateError of several addresses.
 */
export function isUnavailable(error: unknown): boolean {
  return isUnavailableAtDepth(error, 0);
}

const MAX_DEPTH = 6;

function isUnavailableAtDepth(error: unknown, depth: number): boolean {
  if (typeof error !== 'object' || error === null || depth > MAX_DEPTH) return false;
  if (error instanceof QueueFull) return true;
  for (const code of [stringMember(error, 'code'), stringMember(error, 'originalCode')]) {
    if (code === undefined) continue;
    if (UNAVAILABLE_NODE_CODES.has(code) || UNAVAILABLE_PRISMA_CODES.has(code)) return true;
    if (UNAVAILABLE_SQLSTATE.test(code)) return true;
  }
  const message = stringMember(error, 'message');
  if (message !== undefined && UNAVAILABLE_MESSAGES.some((part) => message.startsWith(part))) return true;
  return wrapped(error).some((inner) => isUnavailableAtDepth(inner, depth + 1));
}

/** The errors inside an error: its cause, an AggregateError's parts, what Prisma keeps of the driver's. */
function wrapped(error: object): unknown[] {
  const { cause, errors, meta } = error as { cause?: unknown; errors?: unknown; meta?: unknown };
  const driver = typeof meta === 'object' && meta !== null ? (meta as { driverAdapterError?: unknown }) : {};
  return [cause, driver.driverAdapterError, ...(Array.isArray(errors) ? (errors as unknown[]) : [])];
}

function stringMember(error: object, name: 'code' | 'originalCode' | 'message'): string | undefined {
  const value = (error as Record<string, unknown>)[name];
  return typeof value === 'string' ? value : undefined;
}
