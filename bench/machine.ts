import { execFileSync } from 'node:child_process';
import { closeSync, fdatasyncSync, openSync, rmSync, writeSync } from 'node:fs';
import { cpus, release, totalmem, type as osType } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';

/** How often a block of 8 KiB can be made durable here per second, one after the other: what a lone commit costs. */
function syncsPerSecond(directory: string): number {
  const file = join(directory, 'sync-test');
  const block = Buffer.alloc(8192, 1);
  const descriptor = openSync(file, 'w');
  const begun_at = performance.now();
  let syncs = 0;
  while (performance.now() - begun_at < 1000) {
    writeSync(descriptor, block, 0, block.length, 0);
    fdatasyncSync(descriptor);
    syncs += 1;
  }
  closeSync(descriptor);
  rmSync(file);
  return syncs / ((performance.now() - begun_at) / 1000);
}

function commit(): string {
  try {
    const git = (...args: string[]): string =>
      execFileSync('git', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
    const id = git('rev-parse', '--short', 'HEAD');
    const changed = git('status', '--porcelain', '--', 'src', 'prisma') !== '';
    return changed ? `${id} with uncommitted changes` : id;
  } catch {
    return 'unknown';
  }
}

/** What the numbers were measured on, as lines of Markdown. */
export function describeMachine(directory: string, postgres_version: string): readonly string[] {
  const processors = cpus();
  return [
    `- ${processors.length} × ${processors[0]?.model.trim() ?? 'unknown processor'}, ${Math.round(totalmem() / 2 ** 30)} GiB memory, ${osType()} ${release()}`,
    `- disk: ${Math.round(syncsPerSecond(directory)).toLocaleString('en')} durable 8 KiB writes per second, one after the other`,
    `- Node ${process.version}, PostgreSQL ${postgres_version}, commit ${commit()}`,
  ];
}
