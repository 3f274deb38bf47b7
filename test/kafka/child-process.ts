import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { vi } from 'vitest';
import { type DatabaseAddress, expectRunsWay } from '../support/database.js';
import { SOON } from './support.js';

interface ChildOptions {
  readonly database: Pick<DatabaseAddress, 'url' | 'pooler'>;
  readonly [name: string]: unknown;
}

/** A file of children/ as a process of its own, to be killed. */
export class Child {
  readonly lines: string[] = [];
  private exited = false;

  private constructor(private readonly process: ChildProcess) {
    process.stdout?.on('data', (chunk: Buffer) => this.lines.push(...chunk.toString().split('\n').filter(Boolean)));
    process.once('exit', () => (this.exited = true));
  }

  static start(name: 'relay' | 'consumer', options: ChildOptions): Child {
    expectRunsWay(options.database);
    const file = fileURLToPath(new URL(`children/${name}.ts`, import.meta.url));
    const args = ['--import', 'tsx', file, JSON.stringify(options)];
    return new Child(spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] }));
  }

  async until(check: (lines: readonly string[]) => boolean): Promise<void> {
    await vi.waitFor(() => {
      if (this.exited) throw new Error('the child has ended');
      if (!check(this.lines)) throw new Error(`not yet: ${this.lines.length} lines`);
    }, SOON);
  }

  /** kill -9. */
  async kill(): Promise<void> {
    if (this.exited) return;
    const gone = new Promise((resolve) => this.process.once('exit', resolve));
    this.process.kill('SIGKILL');
    await gone;
  }
}
