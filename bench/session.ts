import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { say, type Context } from './context.js';
import type { Options } from './options.js';
import { startPostgres } from './postgres.js';
import { killServers } from './service.js';

/**
 * Runs `measure` with a folder and a PostgreSQL that are gone afterwards, also after Ctrl-C or SIGTERM: the server is in
 * a session of its own and would outlive us. After a failure the logs stay, and it is said where.
 */
export async function withSession(options: Options, measure: (context: Context) => Promise<void>): Promise<void> {
  const parent = options.directory ?? tmpdir();
  mkdirSync(parent, { recursive: true });
  const directory = mkdtempSync(join(parent, 'oncepay-bench-'));
  const starting = startPostgres(directory);
  const endOnSignal = (): void => {
    killServers();
    void starting
      .then((postgres) => postgres.stop())
      .finally(() => {
        rmSync(directory, { recursive: true, force: true });
        process.exit(1);
      });
  };
  process.once('SIGINT', endOnSignal);
  process.once('SIGTERM', endOnSignal);
  const postgres = await starting;
  let finished = false;
  try {
    await measure({ options, directory, postgres });
    finished = true;
  } finally {
    await postgres.stop();
    if (!finished) say(`logs are kept in ${directory}`);
    rmSync(finished ? directory : join(directory, 'postgres'), { recursive: true, force: true });
    process.off('SIGINT', endOnSignal);
    process.off('SIGTERM', endOnSignal);
  }
}
