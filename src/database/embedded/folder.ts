import { chmodSync, lstatSync, mkdirSync, mkdtempSync, readlinkSync, realpathSync, symlinkSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type Account, canEnter } from './account.js';

/** For root: where data lie that the server's user could not reach otherwise. */
export const SYSTEM_FOLDER = '/var/lib/oncepay';

/**
 * Where the server's data are or will be: `<data_dir>/postgres`, told without symbolic links. Where the server's user
 * can't enter `data_dir`, that is a link to a folder of its own below /var/lib/oncepay: whoever removes `data_dir`
 * removes the way to its data too, and never meets them again under another API key.
 */
export function dataFolder(data_dir: string, account: Account | null): string {
  const folder = join(data_dir, 'postgres');
  if (lstatSync(folder, { throwIfNoEntry: false })?.isSymbolicLink() === true) {
    const target = readlinkSync(folder);
    mkdirSync(dirname(target), { recursive: true, mode: 0o711 });
    return join(realpathSync(dirname(target)), basename(target));
  }
  if (account === null || canEnter(account, data_dir)) return join(realpathSync(data_dir), 'postgres');
  const home = makeHome(basename(data_dir), account);
  symlinkSync(join(home, 'postgres'), folder);
  return join(home, 'postgres');
}

function makeHome(name: string, account: Account): string {
  makeEnterable(SYSTEM_FOLDER);
  const home = mkdtempSync(join(SYSTEM_FOLDER, `${name}-`));
  chmodSync(home, 0o711);
  if (!canEnter(account, home)) {
    throw new Error(
      `The user that PostgreSQL runs as can enter neither DATA_DIR nor ${home}. Set DATA_DIR to a folder that it can enter`,
    );
  }
  return home;
}

/** A folder that others may pass through by name, but not list. */
export function makeEnterable(folder: string): void {
  if (lstatSync(folder, { throwIfNoEntry: false }) !== undefined) return;
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o711);
}
