/** Where PgBouncer is on this machine: installed, or Debian's package taken apart in .cache/pgbouncer, without root rights. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const CACHE = fileURLToPath(new URL('../../.cache/pgbouncer', import.meta.url));
const UNPACKED = join(CACHE, 'debian');
/** Debian keeps it where the PATH of ordinary users does not lead. */
const INSTALLED = ['pgbouncer', '/usr/sbin/pgbouncer'];
const DOWNLOAD_LIMIT_MS = 3 * 60_000;

export interface PgBouncerProgram {
  readonly file: string;
  /** What it was unpacked with, to be copied along; null: it is installed. */
  readonly folder: string | null;
  /** For LD_LIBRARY_PATH, below `folder`: libraries that this machine lacks. */
  readonly libraries: readonly string[];
}

/** Null where there is none: `npx tsx scripts/pgbouncer/fetch.ts` brings it. */
export function findPgBouncer(): PgBouncerProgram | null {
  for (const file of INSTALLED) if (runs(file)) return { file, folder: null, libraries: [] };
  const libraries = join(UNPACKED, 'usr', 'lib');
  const file = join(UNPACKED, 'usr', 'sbin', 'pgbouncer');
  if (!existsSync(file)) return null;
  return { file, folder: UNPACKED, libraries: existsSync(libraries) ? folders(libraries) : [] };
}

function folders(directory: string): string[] {
  const found = readdirSync(directory, { withFileTypes: true });
  return found.filter((entry) => entry.isDirectory()).map(({ name }) => join(directory, name));
}

function runs(file: string): boolean {
  try {
    execFileSync(file, ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/**
 * Downloads Debian's package, and of the libraries that it needs those that are not installed, and unpacks them.
 * @throws Error that says what this machine lacks
 */
export function fetchPgBouncer(): void {
  mkdirSync(CACHE, { recursive: true });
  // Into a folder of its own, renamed when complete: a download that was cut off is never taken for one.
  const partial = mkdtempSync(join(CACHE, 'download-'));
  try {
    download(partial, ['pgbouncer', ...missingLibraries()]);
    const unpacked = join(partial, 'root');
    for (const name of readdirSync(partial).filter((file) => file.endsWith('.deb'))) {
      run('dpkg-deb', ['-x', join(partial, name), unpacked], partial);
    }
    rmSync(UNPACKED, { recursive: true, force: true });
    renameSync(unpacked, UNPACKED);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}

/** By name: their names differ between Debian's releases. */
function missingLibraries(): string[] {
  const text = run('apt-cache', ['depends', 'pgbouncer'], CACHE);
  const needed = [...text.matchAll(/^\s*\|?Depends: (lib[^\s<>]+)$/gm)].map(([, name = '']) => name);
  return needed.filter((name) => !isInstalled(name));
}

function isInstalled(name: string): boolean {
  try {
    return run('dpkg-query', ['-W', '-f', '${Status}', name], CACHE).includes(' installed');
  } catch {
    return false;
  }
}

function download(directory: string, packages: readonly string[]): void {
  try {
    run('apt-get', ['download', ...packages], directory);
  } catch (error) {
    // A fresh container has no lists of packages yet; only root may fetch them.
    if (process.getuid?.() !== 0) throw error;
    run('apt-get', ['update'], directory);
    run('apt-get', ['download', ...packages], directory);
  }
}

function run(command: string, args: readonly string[], directory: string): string {
  try {
    return execFileSync(command, args, { cwd: directory, encoding: 'utf8', stdio: 'pipe', timeout: DOWNLOAD_LIMIT_MS });
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string };
    const said = stderr?.trim().split('\n').at(-1);
    throw new Error(`${command} failed: ${said ? said : message}`, { cause: error });
  }
}
