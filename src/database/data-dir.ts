import { createHash } from 'node:crypto';
import { accessSync, chmodSync, constants, mkdirSync, readdirSync, statSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { canEnter, isRoot, serverAccount } from './embedded/account.js';
import { SYSTEM_FOLDER } from './embedded/folder.js';
import { lockFolder } from './folder-lock.js';

/** The folder that the embedded parts keep their things in, held by this process. */
export interface DataDir {
  readonly path: string;
  /** The path of a file in it. */
  file(name: string): string;
  release(): void;
}

/**
 * Opens DATA_DIR: makes it where it is missing, and locks it for this process.
 * @param configured DATA_DIR, or null for the default place
 * @throws Error with a text for people: not writable, or another service is at work in it
 */
export async function openDataDir(configured: string | null): Promise<DataDir> {
  const path = locateDataDir(configured, process.cwd());
  try {
    prepare(path);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`DATA_DIR: ${path} can't be used: ${reason}. Set DATA_DIR to a folder that this user may write`, {
      cause: error,
    });
  }
  const lock = await lockFolder(join(path, 'lock'));
  if (!lock.held) {
    throw new Error(
      `DATA_DIR: ${path} is in use by another service (${lock.holder}). Stop it, or set DATA_DIR to another folder`,
    );
  }
  return { path, file: (name) => join(path, name), release: lock.release };
}

/**
 * Where DATA_DIR is: as configured; else `.data` in the working directory; but for root in a folder that the database's
 * user can't enter, a folder of this one's own below /var/lib/oncepay.
 */
export function locateDataDir(configured: string | null, working_directory: string): string {
  if (configured !== null) return resolve(working_directory, configured);
  const account = serverAccount();
  if (account === null || canEnter(account, working_directory)) return join(working_directory, '.data');
  const mark = createHash('sha256').update(working_directory).digest('hex').slice(0, 8);
  return join(SYSTEM_FOLDER, `${basename(working_directory)}-${mark}`);
}

function prepare(path: string): void {
  mkdirSync(path, { recursive: true });
  accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK);
  const { mode, uid } = statSync(path);
  if (uid !== process.getuid?.() || readdirSync(path).length > 0) return;
  // New, or empty as `mktemp -d` leaves it: ours. Nobody else may list it; the database's user, which is another for
  // root, has to pass through.
  chmodSync(path, isRoot() ? (mode & 0o700) | 0o011 : 0o700);
}
