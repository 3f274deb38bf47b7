import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isRunning, processesIn, standsIn } from '../processes.js';

/** What a running server says about itself in its data folder. */
export interface Postmaster {
  readonly pid: number;
  readonly port: number;
  readonly status: string;
}

const POLL_MS = 10;

/** postmaster.pid: line 1 the pid, line 4 the port, line 8 the status (`starting`, `ready`, `stopping`). */
export function readPostmaster(data: string): Postmaster | undefined {
  let lines: string[];
  try {
    lines = readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n');
  } catch {
    return undefined;
  }
  return { pid: Number(lines[0]), port: Number(lines[3]), status: lines[7]?.trim() ?? '' };
}

/**
 * Finds the server that already runs on these data, as after kill -9 of the service. Waits for one that is still
 * starting or stopping. What a dead one left behind is removed, but only when no process of it is left, which might
 * still write.
 * @param data without symbolic links in it
 * @returns undefined when none runs and a new one may start
 */
export async function findRunning(data: string, limit_ms: number): Promise<Postmaster | undefined> {
  const end = performance.now() + limit_ms;
  for (;;) {
    const found = readPostmaster(data);
    if (found === undefined) return undefined;
    const alive = isServer(found.pid, data);
    if (alive && found.status === 'ready') return found;
    if (!alive && processesIn(data).length === 0) {
      // A zombie may stay for as long as its parent likes, and PostgreSQL would take it for a running server.
      if (process.platform === 'linux') rmSync(join(data, 'postmaster.pid'), { force: true });
      return undefined;
    }
    if (performance.now() > end) {
      throw new Error(
        `PostgreSQL (pid ${found.pid}, ${alive ? found.status : 'ended, its processes are not'}) in ${data} neither runs nor ends`,
      );
    }
    await delay(POLL_MS);
  }
}

/** A pid may have been used again: the server is the process that also stands in its data. */
function isServer(pid: number, data: string): boolean {
  if (!isRunning(pid)) return false;
  return process.platform === 'linux' ? standsIn(pid, data) : true;
}

/** Waits for a server that was just started. @param failed why it ended meanwhile, as soon as it has */
export async function waitUntilReady(
  data: string,
  limit_ms: number,
  failed: () => string | undefined,
): Promise<Postmaster> {
  const end = performance.now() + limit_ms;
  for (;;) {
    const reason = failed();
    if (reason !== undefined) throw new Error(reason);
    const found = readPostmaster(data);
    if (found?.status === 'ready') return found;
    if (performance.now() > end) throw new Error(`PostgreSQL in ${data} did not get ready within ${limit_ms} ms`);
    await delay(POLL_MS);
  }
}

/**
 * Ends a server in its fast mode (transactions are cut, everything is written, clean for the next start), and when that
 * takes too long at once, which the next start repairs from the log.
 */
export async function stopServer(pid: number, limit_ms: number): Promise<void> {
  for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
    if (!signalProcess(pid, signal)) return;
    const end = performance.now() + limit_ms;
    while (isRunning(pid) && performance.now() < end) await delay(POLL_MS);
    if (!isRunning(pid)) return;
  }
  throw new Error(`PostgreSQL (pid ${pid}) does not end`);
}

/** Begins the fast end. A server that is gone already is no error. */
export function tellToEnd(pid: number): void {
  signalProcess(pid, 'SIGINT');
}

function signalProcess(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
