import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

/** What a statement runs on: its own connection, or the one that holds a transaction. */
export type Connection = pg.Pool | pg.PoolClient;

const TRIES_MAX = 5;
const PAUSE_MS = 20;
/** Serialization failure and deadlock: nothing was done, and doing it again is the remedy. */
const RETRIED_SQLSTATES = new Set(['40001', '40P01']);

/**
 * Runs `run` in a transaction (read committed) and commits it. Rolls back when `run` rejects. On a serialization failure
 * or deadlock the whole of `run` is done again, a few times, so it must not have effects outside the database (R3).
 * @throws what `run` threw, or the database's error. After a connection lost while committing, the outcome is unknown.
 */
export async function inTransaction<T>(pool: pg.Pool, run: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await once(pool, run);
    } catch (error) {
      if (tries >= TRIES_MAX || !RETRIED_SQLSTATES.has(sqlState(error) ?? '')) throw error;
    }
    // The pause lets the other side finish; no connection is held meanwhile.
    await delay(Math.random() * PAUSE_MS * tries);
  }
}

async function once<T>(pool: pg.Pool, run: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query('BEGIN');
    const result = await run(client);
    const end = await client.query('COMMIT');
    // A failed statement whose error was swallowed: the server answers COMMIT by rolling back, without an error.
    if (end.command !== 'COMMIT') throw new Error('The transaction was rolled back: a statement in it had failed');
    return result;
  } catch (error) {
    broken = await rollBack(client, error);
    throw error;
  } finally {
    client.release(broken);
  }
}

/** @returns why the connection must not go back to the pool, or undefined when it is clean. */
async function rollBack(client: pg.PoolClient, cause: unknown): Promise<Error | undefined> {
  // After an error of the driver (time-out, lost connection) the connection's state is not known, and a ROLLBACK would
  // queue behind the statement that hangs.
  if (isDriverError(cause)) return cause;
  try {
    await client.query('ROLLBACK');
    // Outside transactions the pool itself gives up the connection of a statement that failed. One that could not even be
    // prepared has its name taken all the same by a PgBouncer that keeps prepared statements (pgbouncer/pgbouncer#1118).
    return cause instanceof pg.DatabaseError ? cause : undefined;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

function isDriverError(error: unknown): error is Error {
  if (!(error instanceof Error) || error instanceof pg.DatabaseError) return false;
  return 'syscall' in error || /^(Connection terminated|Query read timeout|Client (has|was))/.test(error.message);
}

/** The SQLSTATE of an error of pg, or undefined. */
export function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined;
}
