import { existsSync } from 'node:fs';
import { hostname, userInfo } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { ConfigError, parseConfig } from '../config.js';
import { openPool } from '../database/database.js';
import { isUnavailable } from '../database/errors.js';
import { MigrationError, pendingMigrations } from '../database/migrate.js';
import { isRefusal, parseCommand, USAGE, UsageError } from './command.js';
import { KEY_CACHE_TTL_MS } from './directory.js';
import { findDatabase, NoDatabaseError } from './find-database.js';

/** As the service reads it: what the environment has wins. */
const ENV_FILE = '.env';

/** `npm run clients -- …`: clients and their keys (docs/clients.md). Ends with 2 for what it does not understand. */
async function main(args: readonly string[]): Promise<number> {
  if (args.length === 0 || args.includes('--help') || args.includes('-h') || args[0] === 'help') {
    console.log(USAGE);
    return args.length === 0 ? 2 : 0;
  }
  const run = parseCommand(args);
  if (existsSync(ENV_FILE)) process.loadEnvFile(ENV_FILE);
  const database = await findDatabase(parseConfig(process.env), process.cwd());
  const pool = openPool(database.url, { pool_size: 1 });
  try {
    if ((await pendingMigrations(pool)).length > 0) {
      throw new MigrationError(
        'The database is not at the version of this code. Start the service once: it brings it there',
      );
    }
    await run({
      pool,
      actor: `cli:${userName()}@${hostname()}`,
      print: (line) => console.log(line),
      say: (line) => console.error(line),
      // Whoever remembers a key for longer was told by NOTIFY long before.
      untilForgotten: () => delay(KEY_CACHE_TTL_MS),
    });
    return 0;
  } finally {
    await pool.end();
    await database.close();
  }
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.() ?? 'unknown');
  }
}

/** What goes to standard error: a defect with its stack, everything else in words. */
function explain(error: unknown): string {
  if (error instanceof UsageError) return `${error.message}\n\n${USAGE}`;
  if (isUnavailable(error)) return `The database can't be reached: ${error instanceof Error ? error.message : ''}`;
  if (!(error instanceof Error)) return String(error);
  const foreseen =
    isRefusal(error) || [ConfigError, MigrationError, NoDatabaseError].some((kind) => error instanceof kind);
  return foreseen ? error.message : (error.stack ?? error.message);
}

main(process.argv.slice(2)).then(
  (code) => (process.exitCode = code),
  (error: unknown) => {
    console.error(explain(error));
    process.exitCode = isRefusal(error) ? 2 : 1;
  },
);
