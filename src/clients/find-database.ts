import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Config } from '../config.js';
import type { Pooler } from '../config-variables.js';
import { locateDataDir } from '../database/data-dir.js';
import { startEmbeddedPostgres } from '../database/embedded/server.js';
import { lockFolder } from '../database/folder-lock.js';

/** Nothing to work on; says where it was looked for. */
export class NoDatabaseError extends Error {
  override readonly name = 'NoDatabaseError';
}

export interface FoundDatabase {
  readonly url: string;
  readonly pooler: Pooler;
  /** Leaves it as it was found: a server that was started for this ends again. */
  close(): Promise<void>;
}

/**
 * The database of the service that the environment describes: DATABASE_URL, or the embedded one in DATA_DIR, whether the
 * service runs or not.
 * @throws Error with a text for people
 */
export async function findDatabase(config: Config, working_directory: string): Promise<FoundDatabase> {
  const { url, pooler } = config.database;
  if (url !== null) return { url, pooler, close: async () => undefined };
  const data_dir = locateDataDir(config.data_dir, working_directory);
  if (!existsSync(join(data_dir, 'postgres'))) {
    throw new NoDatabaseError(
      `There is no database in ${data_dir} yet. Start the service once, or set DATABASE_URL or DATA_DIR`,
    );
  }
  // With the lock no service starts while we have its database; without it one runs, and the database is its to stop.
  const lock = await lockFolder(join(data_dir, 'lock'));
  try {
    const server = await startEmbeddedPostgres({ data_dir });
    return {
      url: server.url,
      pooler,
      close: async () => {
        if (lock.held && !server.reused) await server.stop();
        if (lock.held) lock.release();
      },
    };
  } catch (error) {
    if (lock.held) lock.release();
    throw error;
  }
}
