import { spawnSync } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';

/** Under which user PostgreSQL runs. It refuses to run as root. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

const NOBODY: Account = { uid: 65534, gid: 65534 };

export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/**
 * The user that a new server runs as: null for the one that we are, and for root `postgres` where it exists, else `nobody`.
 */
export function serverAccount(): Account | null {
  if (!isRoot()) return null;
  return findAccount('postgres') ?? findAccount('nobody') ?? NOBODY;
}

/** The user that existing data belong to; null when that is us. Data keep their user when `postgres` appears later. */
export function ownerAccount(directory: string): Account | null {
  if (!isRoot()) return null;
  const { uid, gid } = statSync(directory);
  return { uid, gid };
}

function findAccount(name: string): Account | undefined {
  let passwd: string;
  try {
    passwd = readFileSync('/etc/passwd', 'utf8');
  } catch {
    return undefined;
  }
  for (const line of passwd.split('\n')) {
    const [user, , uid, gid] = line.split(':');
    if (user === name && uid !== undefined && gid !== undefined) return { uid: Number(uid), gid: Number(gid) };
  }
  return undefined;
}

/** Whether a user may enter a folder (every folder above it included): asked by trying, so that ACLs count too. */
export function canEnter(account: Account | null, directory: string): boolean {
  return tryAs(account, 'cd "$1"', directory);
}

/** Whether a user may run a program that lies there. */
export function canExecute(account: Account | null, file: string): boolean {
  return tryAs(account, 'test -r "$1" && test -x "$1"', file);
}

function tryAs(account: Account | null, script: string, path: string): boolean {
  const run = spawnSync('/bin/sh', ['-c', script, 'sh', path], { ...(account ?? {}), cwd: '/', stdio: 'ignore' });
  if (run.error !== undefined && 'code' in run.error && (run.error.code === 'EPERM' || run.error.code === 'EINVAL')) {
    throw new Error(
      'PostgreSQL refuses to run as root, and this process may not run it as another user. ' +
        'Start the service as a normal user, or set DATABASE_URL',
    );
  }
  return run.status === 0;
}
