import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { freePort } from '../../scripts/free-port.js';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { vi } from 'vitest';

/** The service in a process of its own, as it really runs. */
export interface ServiceProcess {
  readonly url: string;
  /** Of the client `default`, with every scope. Every service of the tests has the same, so that instances share it. */
  readonly api_key: string;
  readonly pid: number;
  /** SIGTERM, or another; resolves with the exit code once it has ended. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
  /** SIGKILL: what `kill -9` does. */
  kill(): Promise<void>;
  /** Resolves with the exit code when it ends by itself. */
  readonly ended: Promise<number | null>;
  /** Everything that it has printed so far, the log included. */
  output(): string;
}

export interface ServiceOptions {
  /** Its whole environment, beside PATH and what is defaulted below; undefined takes a default away. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** False: do not wait until it is ready (it may be meant to fail). */
  readonly wait?: boolean;
}

export const TEST_API_KEY = `oncepay_sk_${'t'.repeat(43)}`;
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const READY_LIMIT_MS = 60_000;
/** A look that hangs must not hang the wait. */
const LOOK_LIMIT_MS = 5_000;

/**
 * Starts the service on a free port, in a working directory of its own. Runs what was built where that is up to date,
 * the sources otherwise. Give `DATABASE_URL` and `SANDBOX_URL`, or `DATA_DIR` for the embedded parts.
 */
export async function startServiceProcess(options: ServiceOptions): Promise<ServiceProcess> {
  const port = options.env.PORT ?? String(await freePort());
  const directory = openFolder();
  const child = spawn(process.execPath, program(), {
    cwd: directory,
    env: {
      PATH: process.env.PATH,
      BOOTSTRAP_API_KEY: TEST_API_KEY,
      RATE_LIMIT_PER_SECOND: '0',
      ...options.env,
      PORT: port,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data: Buffer) => (output += data.toString()));
  const ended = once(child, 'close').then(([code]: (number | null)[]) => {
    rmSync(directory, { recursive: true, force: true });
    return code ?? null;
  });
  const url = `http://127.0.0.1:${port}`;
  const service = {
    url,
    api_key: TEST_API_KEY,
    pid: child.pid ?? 0,
    ended,
    output: () => output,
    ...endings(child, ended),
  };
  if (options.wait !== false) await untilReady(service, child);
  return service;
}

/** A folder that the embedded database's user can enter also when root makes it. */
export function openFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'oncepay-service-'));
  if (process.getuid?.() === 0) chmodSync(folder, 0o711);
  return folder;
}

function endings(child: ChildProcess, ended: Promise<number | null>): Pick<ServiceProcess, 'stop' | 'kill'> {
  return {
    stop: (signal = 'SIGTERM') => {
      child.kill(signal);
      return ended;
    },
    kill: async () => {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

let built: boolean | undefined;

function program(): string[] {
  built ??= spawnSync(process.execPath, [join(ROOT, 'scripts/ensure-built.mjs'), '--check']).status === 0;
  if (built) return [join(ROOT, 'dist/main.js')];
  const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
  return ['--import', tsx, join(ROOT, 'src/main.ts')];
}

async function untilReady(service: ServiceProcess, child: ChildProcess): Promise<void> {
  await vi.waitUntil(
    async () => {
      if (child.exitCode !== null || child.signalCode !== null) return true;
      const answer = await fetch(`${service.url}/health/ready`, { signal: AbortSignal.timeout(LOOK_LIMIT_MS) }).catch(
        () => undefined,
      );
      return answer?.status === 200;
    },
    { timeout: READY_LIMIT_MS, interval: 20 },
  );
  if (child.exitCode !== null || child.signalCode !== null) {
    throw new Error(`The service ended instead of starting:\n${service.output()}`);
  }
}
