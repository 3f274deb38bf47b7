import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Step } from '../../src/payments/context.js';
import { freePort } from '../../scripts/free-port.js';
import { type DatabaseAddress, expectRunsWay } from '../support/database.js';
import { openFolder, TEST_API_KEY } from '../support/service.js';
import type { Order } from './service-main.js';

/** A service that can be killed, paused and resumed at a step. */
export interface Victim {
  readonly url: string;
  readonly pid: number;
  /** The next request that gets to the step kills the process. */
  dieAt(step: Step): void;
  /** The next request that gets to the step waits there. Resolves when it stands. */
  holdAt(step: Step): Promise<void>;
  goOn(): void;
  kill(): Promise<void>;
  pause(): void;
  resume(): void;
  stop(): Promise<void>;
  /** Resolves when the process is gone, however. */
  readonly ended: Promise<unknown>;
  output(): string;
}

const MAIN = fileURLToPath(new URL('service-main.ts', import.meta.url));
const ENSURE_BUILT = fileURLToPath(new URL('../../scripts/ensure-built.mjs', import.meta.url));
const TSX = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;

let isBuilt: boolean | undefined;

/** @param env what it gets beside its database */
export async function startVictim(
  database: DatabaseAddress,
  env: Readonly<Record<string, string>>,
  port?: number,
): Promise<Victim> {
  expectRunsWay(database);
  isBuilt ??= spawnSync(process.execPath, [ENSURE_BUILT, '--check']).status === 0;
  const child = spawn(process.execPath, ['--import', TSX, MAIN], {
    cwd: openFolder(),
    env: {
      PATH: process.env.PATH,
      BOOTSTRAP_API_KEY: TEST_API_KEY,
      RATE_LIMIT_PER_SECOND: '0',
      LOG_LEVEL: 'warn',
      CRASH_USES_BUILD: isBuilt ? '1' : '0',
      ...env,
      ...database.env,
      PORT: String(port ?? (await freePort())),
    },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (data: Buffer) => (output += data.toString()));
  const ended = once(child, 'exit');
  const ready = messageOf(child, 'ready');
  const url = await Promise.race([ready, ended.then(() => Promise.reject(new Error(`The service ended:\n${output}`)))]);
  const tell = (order: Order): void => {
    child.send(order);
  };
  return {
    url,
    pid: child.pid ?? 0,
    ended,
    output: () => output,
    dieAt: (at) => tell({ at, what: 'die' }),
    holdAt: async (at) => {
      const held = messageOf(child, 'held');
      tell({ at, what: 'hold' });
      await held;
    },
    goOn: () => tell('go_on'),
    kill: async () => {
      child.kill('SIGKILL');
      await ended;
    },
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    stop: async () => {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

function messageOf(child: ChildProcess, name: 'ready' | 'held'): Promise<string> {
  return new Promise((resolve) => {
    const listen = (message: unknown): void => {
      if (typeof message !== 'object' || message === null || !(name in message)) return;
      child.off('message', listen);
      resolve(String((message as Record<string, unknown>)[name]));
    };
    child.on('message', listen);
  });
}
