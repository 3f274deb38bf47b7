import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { freePort } from '../scripts/free-port.js';

export const ROOT = fileURLToPath(new URL('..', import.meta.url));
export const API_KEY = 'oncepay_bench_0123456789abcdef0123456789abcdef';

const READY_WITHIN_MS = 60_000;
const END_WITHIN_MS = 30_000;

export interface RunningService {
  readonly url: string;
  readonly pid: number;
  /** SIGTERM, and waits for the end. */
  stop(): Promise<void>;
}

export interface Command {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly log: string;
}

const running = new Set<ChildProcess>();

/** Starts a program whose output goes to a file, as a service's does. */
export function start(command: Command): ChildProcess {
  const log = openSync(command.log, 'a');
  const child = spawn(command.program, command.args, {
    cwd: ROOT,
    env: { ...process.env, ...command.env },
    stdio: ['ignore', log, log],
  });
  closeSync(log);
  running.add(child);
  child.once('exit', () => running.delete(child));
  return child;
}

/** For an end in the middle: everything that `start` started and that has not ended. */
export function killServers(): void {
  for (const child of running) child.kill('SIGKILL');
}

/** Waits until `url` answers below 500. @throws where the process ends before, with the end of its log. */
async function untilAnswers(child: ChildProcess, url: string, log: string): Promise<void> {
  const give_up_at = Date.now() + READY_WITHIN_MS;
  while (Date.now() < give_up_at) {
    if (child.exitCode !== null) break;
    const answered = await fetch(url, { signal: AbortSignal.timeout(2000) }).then(
      (answer) => answer.status < 500,
      () => false,
    );
    if (answered) return;
    await wait(20);
  }
  throw new Error(`${url} did not become ready:\n${readFileSync(log, 'utf8').slice(-3000)}`);
}

export async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => {
    child.once('exit', () => {
      resolve();
    });
  });
  child.kill('SIGTERM');
  const hard = setTimeout(() => child.kill('SIGKILL'), END_WITHIN_MS);
  await ended;
  clearTimeout(hard);
}

/** @param ready_path what answers when the server is ready */
export async function startServer(command: Command, url: string, ready_path: string): Promise<RunningService> {
  const child = start(command);
  try {
    await untilAnswers(child, `${url}${ready_path}`, command.log);
  } catch (error) {
    await stop(child);
    throw error;
  }
  return { url, pid: child.pid ?? 0, stop: () => stop(child) };
}

export interface ServiceOptions {
  readonly database_url: string;
  readonly directory: string;
  readonly name: string;
  /** Options for node itself, such as --cpu-prof. */
  readonly node_options?: readonly string[];
  /** Beside, or instead of, what every service here gets. */
  readonly env?: Readonly<Record<string, string>>;
}

/** What `npm start` gives node. */
function startArguments(): string[] {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: { start: string } };
  const [, ...args] = scripts.start.replace(/^exec /, '').split(' ');
  return args;
}

/** The service as in production, but for the provider, which answers at once, and the rate limit, which is off. */
export async function startService(options: ServiceOptions): Promise<RunningService> {
  const port = await freePort();
  return startServer(
    {
      program: process.execPath,
      args: [...(options.node_options ?? []), ...startArguments()],
      env: {
        NODE_ENV: 'production',
        HOST: '127.0.0.1',
        PORT: String(port),
        DATABASE_URL: options.database_url,
        DATA_DIR: join(options.directory, `${options.name}-data`),
        BOOTSTRAP_API_KEY: API_KEY,
        PROVIDERS: 'instant',
        RATE_LIMIT_PER_SECOND: '0',
        LOG_LEVEL: 'info',
        ...options.env,
      },
      log: join(options.directory, `${options.name}.log`),
    },
    `http://127.0.0.1:${port}`,
    '/health/ready',
  );
}
