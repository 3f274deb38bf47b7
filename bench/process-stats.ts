import { readdirSync, readFileSync } from 'node:fs';

/** What /proc counts processor time in; 100 per second on every Linux that Node runs on. */
const TICKS_PER_S = 100;
const MIB = 1024 * 1024;

interface Stat {
  readonly parent: number;
  readonly own_ticks: number;
  readonly ended_children_ticks: number;
}

function readStat(pid: number | string): Stat | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    const field = (index: number): number => Number(fields[index]);
    return { parent: field(1), own_ticks: field(11) + field(12), ended_children_ticks: field(13) + field(14) };
  } catch {
    return null; // ended meanwhile, or no Linux
  }
}

/** Processor seconds of a process and of its children, those that have ended included. 0 where there is no /proc. */
export function cpuSeconds(pid: number): number {
  const self = readStat(pid);
  if (self === null) return 0;
  let ticks = self.own_ticks + self.ended_children_ticks;
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const stat = readStat(name);
    if (stat?.parent === pid) ticks += stat.own_ticks + stat.ended_children_ticks;
  }
  return ticks / TICKS_PER_S;
}

/** Resident memory of one process. 0 where there is no /proc. */
export function residentMiB(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'latin1');
    return (Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) * 1024) / MIB;
  } catch {
    return 0;
  }
}
