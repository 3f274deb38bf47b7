import { hostname, userInfo } from 'node:os';
import type { Pool } from 'pg';
import { ConfigError } from '../config.js';
import { isUnavailable } from '../database/errors.js';
import { MigrationError, pendingMigrations } from '../database/migrate.js';
import { UsageError } from './command.js';
import { NoDatabaseError } from './find-database.js';

export interface CommandLine {
  readonly usage: string;
  /** What the caller got wrong: said in words, ends with 2, and has changed nothing. */
  readonly isRefusal: (error: unknown) => boolean;
  readonly run: (args: readonly string[]) => Promise<void>;
  readonly print: (text: string) => void;
  readonly say: (text: string) => void;
}

/** Runs a command of ours. @returns its exit code: 0 done, 2 not understood or refused, 1 everything else */
export async function runCommandLine(args: readonly string[], command: CommandLine): Promise<number> {
  if (args.length === 0 || args.includes('--help') || args.includes('-h') || args[0] === 'help') {
    command.print(command.usage);
    return args.length === 0 ? 2 : 0;
  }
  try {
    await command.run(args);
    return 0;
  } catch (error) {
    command.say(explain(error, command));
    return command.isRefusal(error) ? 2 : 1;
  }
}

/** @throws MigrationError where the tables are not those that this code knows */
export async function refuseUnmigrated(pool: Pool): Promise<void> {
  if ((await pendingMigrations(pool)).length === 0) return;
  throw new MigrationError(
    'The database is not at the version of this code. Start the service once: it brings it there',
  );
}

/** Who runs a command, for what it leaves in the records. */
export function userAtHost(): string {
  return `${userName()}@${hostname()}`;
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.() ?? 'unknown');
  }
}

/** A defect with its stack, everything else in words. */
function explain(error: unknown, { usage, isRefusal }: CommandLine): string {
  if (error instanceof UsageError) return `${error.message}\n\n${usage}`;
  if (isUnavailable(error)) return `The database can't be reached: ${error instanceof Error ? error.message : ''}`;
  if (!(error instanceof Error)) return String(error);
  const isForeseen =
    isRefusal(error) || [ConfigError, MigrationError, NoDatabaseError].some((kind) => error instanceof kind);
  return isForeseen ? error.message : (error.stack ?? error.message);
}
