import { expect } from 'vitest';
import { isRunning } from '../../src/database/processes.js';
import { type ServiceProcess, startServiceProcess } from './service.js';
import { soon } from './soon.js';

export interface WorkerSeen {
  /** Its place, from 1 to PROCESSES. */
  readonly worker: number;
  readonly pid: number;
}

/** A service of several processes, as it really runs. */
export interface SeveralProcesses extends ServiceProcess {
  /** The log so far: the parent's lines and the workers', which have a `worker`. */
  log(): readonly Readonly<Record<string, unknown>>[];
  /** Those that serve now, by their place. */
  workers(): WorkerSeen[];
  worker(place: number): WorkerSeen;
}

/** Starts it and waits until all serve. */
export async function startSeveral(
  processes: number,
  env: Readonly<Record<string, string | undefined>>,
): Promise<SeveralProcesses> {
  const service = await startServiceProcess({ env: { PROCESSES: String(processes), LOG_LEVEL: 'info', ...env } });
  const log = () => linesOf(service.output());
  const workers = (): WorkerSeen[] => {
    const served = log().filter(({ msg }) => msg === 'a worker serves') as unknown as WorkerSeen[];
    const latest = new Map(served.map((seen) => [seen.worker, seen]));
    return [...latest.values()].filter(({ pid }) => isRunning(pid)).sort((a, b) => a.worker - b.worker);
  };
  const several = {
    ...service,
    log,
    workers,
    worker: (place: number): WorkerSeen => {
      const found = workers().find(({ worker }) => worker === place);
      if (found === undefined) throw new Error(`worker ${place} does not serve:\n${service.output()}`);
      return found;
    },
  };
  try {
    await soon(() => expect(workers()).toHaveLength(processes));
    await soon(() => expect(log().filter(({ msg }) => msg === 'started')).toHaveLength(1));
  } catch (error) {
    await service.kill();
    throw error;
  }
  return several;
}

function linesOf(output: string): Record<string, unknown>[] {
  return output
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** One scrape, on a connection of its own: round robin then gives it to another worker than the last. */
export async function scrape(url: string): Promise<ReadonlyMap<string, number>> {
  const answer = await fetch(`${url}/metrics`, { headers: { connection: 'close' } });
  expect(answer.status).toBe(200);
  const lines = (await answer.text()).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(lines.map((line) => [line.replace(/ \S+$/, ''), Number(/ (\S+)$/.exec(line)?.[1])]));
}

/** Resolves when none of them runs any more. */
export function allGone(pids: readonly number[]): Promise<void> {
  return soon(() => expect(pids.filter(isRunning)).toEqual([]));
}
