/**
 * Every time limit of the way to the database, in one place. Together they keep a hot statement (wait for a connection,
 * run, fail) well within what a lease leaves beside the provider call.
 */
export const DATABASE_LIMITS = {
  /** For a free or new connection. Longer means that the database is away or swamped: the caller is told 503. */
  connect_ms: 5_000,
  /** For a row or table lock. Hot rows are held for milliseconds; whoever waits longer tries again later. */
  lock_ms: 3_000,
  /** For one statement, at the server. */
  statement_ms: 10_000,
  /** Between two statements of a transaction: a process that is stuck must not hold locks. No transaction of ours waits
   * for anything but the database. */
  idle_in_transaction_ms: 15_000,
  /** At our side of the connection, for a server that vanished without a word. Above `statement_ms`, so that the server's
   * own limit comes first. */
  answer_ms: 15_000,
  /** A connection that nobody used for so long is closed. */
  idle_connection_ms: 60_000,
  /** For the advisory lock under which migrations run: another instance may be at work. */
  migration_lock_ms: 120_000,
} as const;
