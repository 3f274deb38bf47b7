import { setTimeout as delay } from 'node:timers/promises';
import { readConfig } from '../config.js';
import { openPool } from '../database/database.js';
import { isRefusal, parseCommand, USAGE } from './command.js';
import { refuseUnmigrated, runCommandLine, userAtHost } from './command-line.js';
import { KEY_CACHE_TTL_MS } from './directory.js';
import { findDatabase } from './find-database.js';

const print = (text: string): void => console.log(text);
const say = (text: string): void => console.error(text);

/** `npm run clients -- …`: clients and their keys (docs/clients.md). Ends with 2 for what it does not understand. */
async function run(args: readonly string[]): Promise<void> {
  const command = parseCommand(args);
  const database = await findDatabase(readConfig(), process.cwd());
  const pool = openPool(database.url, { pool_size: 1, pooler: database.pooler });
  try {
    await refuseUnmigrated(pool);
    // Whoever remembers a key for longer was told by NOTIFY long before.
    const untilForgotten = (): Promise<void> => delay(KEY_CACHE_TTL_MS);
    await command({ pool, actor: `cli:${userAtHost()}`, print, say, untilForgotten });
  } finally {
    await pool.end();
    await database.close();
  }
}

process.exitCode = await runCommandLine(process.argv.slice(2), { usage: USAGE, isRefusal, run, print, say });
