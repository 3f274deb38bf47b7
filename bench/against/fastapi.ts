import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort } from '../../scripts/free-port.js';
import { ROOT, startServer, type RunningService } from '../service.js';

const run = promisify(execFile);
const VENV = join(ROOT, '.cache', 'bench-venv');
const PACKAGES = ['fastapi==0.165.0', 'uvicorn==0.54.0', 'sqlalchemy[asyncio]==2.1.9', 'asyncpg==0.32.0'];

/** Makes the virtual environment where it is not there yet. @returns why it can't be, or null. */
export async function installReference(): Promise<string | null> {
  if (existsSync(join(VENV, 'installed'))) return null;
  try {
    await run('python3', ['-m', 'venv', '--clear', VENV]);
    await run(join(VENV, 'bin', 'pip'), ['install', '--quiet', '--disable-pip-version-check', ...PACKAGES]);
    await run('touch', [join(VENV, 'installed')]);
    return null;
  } catch (error) {
    return error instanceof Error ? (error.message.split('\n').at(-1) ?? 'unknown') : 'unknown';
  }
}

/** The plain way in Python, with one worker per core. */
export async function startReference(
  database_url: string,
  workers: number,
  directory: string,
): Promise<RunningService> {
  const port = await freePort();
  return startServer(
    {
      program: join(VENV, 'bin', 'uvicorn'),
      args: [
        'fastapi_reference:app',
        `--app-dir=${join(ROOT, 'bench', 'against')}`,
        `--port=${port}`,
        `--workers=${workers}`,
        '--log-level=warning',
      ],
      env: { DATABASE_URL: database_url.replace(/^postgres(ql)?:/, 'postgresql+asyncpg:') },
      log: join(directory, 'fastapi.log'),
    },
    `http://127.0.0.1:${port}`,
    '/openapi.json',
  );
}

export async function referenceVersions(): Promise<string> {
  const { stdout } = await run(join(VENV, 'bin', 'pip'), ['list', '--format=freeze', '--disable-pip-version-check']);
  const wanted = /^(fastapi|uvicorn|sqlalchemy|asyncpg)==/i;
  return stdout
    .split('\n')
    .filter((line) => wanted.test(line))
    .join(', ')
    .replaceAll('==', ' ');
}
