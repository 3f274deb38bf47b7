import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** Whether a process runs. A zombie, ended but not yet collected by its parent, does not. */
export function isRunning(pid: number): boolean {
  if (process.platform === 'linux') return statFields(pid) !== undefined;
  return startOf(pid) !== undefined;
}

/**
 * When a process began, in a form that is only good for comparing: together with the pid it names one process for ever,
 * since pids are used again. Undefined: there is no such process.
 */
export function startOf(pid: number): string | undefined {
  if (process.platform === 'linux') return statFields(pid)?.start;
  try {
    const output = execFileSync('ps', ['-o', 'stat=,lstart=', '-p', String(pid)], { encoding: 'utf8' }).trim();
    return output === '' || output.startsWith('Z') ? undefined : output.slice(output.indexOf(' ')).trim();
  } catch {
    return undefined;
  }
}

/** The space in which pids are unique: this boot of this machine, and the container. */
export function pidSpace(): string {
  if (process.platform !== 'linux') return 'machine';
  try {
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()}/${readlinkSync('/proc/self/ns/pid')}`;
  } catch {
    return 'machine';
  }
}

/** The processes that stand in a folder, as every process of a PostgreSQL server stands in its data. Linux only. */
export function processesIn(directory: string): number[] {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => standsIn(pid, directory) && isRunning(pid));
}

export function standsIn(pid: number, directory: string): boolean {
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === directory;
  } catch {
    return false;
  }
}

function statFields(pid: number): { readonly start: string } | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return undefined;
  }
  // "pid (name) state …": the name may hold blanks and brackets. The start is the 22nd field, the state the 3rd.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state] = fields;
  const start = fields[19];
  if (state === 'Z' || state === 'X' || start === undefined) return undefined;
  return { start };
}
