import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { locateDataDir, openDataDir } from '../../src/database/data-dir.js';
import { lockFolder } from '../../src/database/folder-lock.js';
import { keepSecret, randomSecret } from '../../src/database/secret-file.js';

const is_root = process.getuid?.() === 0;
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'oncepay-data-dir-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

test('one service at a time; the next when it has ended', async () => {
  const first = await openDataDir(folder);
  await expect(openDataDir(folder)).rejects.toThrow(
    new RegExp(
      `^DATA_DIR: ${folder} is in use by another service \\(pid ${process.pid}, since .*Stop it, or set DATA_DIR`,
    ),
  );
  first.release();
  (await openDataDir(folder)).release();
  expect(readdirSync(join(folder, 'lock'))).toEqual([]);
});

test('of many that come at once never more than one gets in', async () => {
  const locks = await Promise.all(Array.from({ length: 8 }, () => lockFolder(join(folder, 'lock'))));
  expect(locks.filter((lock) => lock.held).length).toBeLessThanOrEqual(1);
});

/** A process that takes the lock and keeps it. */
async function holder(): Promise<{ kill(): Promise<void> }> {
  const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
  const lock_module = fileURLToPath(new URL('../../src/database/folder-lock.ts', import.meta.url));
  const script = `
    const { lockFolder } = await import(${JSON.stringify(lock_module)});
    console.log((await lockFolder(${JSON.stringify(join(folder, 'lock'))})).held);
    setInterval(() => undefined, 1000);`;
  const child = spawn(process.execPath, ['--import', tsx, '--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [said] = (await once(child.stdout, 'data')) as [Buffer];
  expect(said.toString().trim()).toBe('true');
  return {
    kill: async () => {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
}

test('the lock of a process that was killed is taken over, that of a living one is not', async () => {
  const other = await holder();
  expect((await lockFolder(join(folder, 'lock'))).held).toBe(false);
  await other.kill();
  const lock = await lockFolder(join(folder, 'lock'));
  expect(lock.held).toBe(true);
  expect(readdirSync(join(folder, 'lock'))).toHaveLength(1);
});

/** Announces somebody whose process can't be seen from here. */
function announceElsewhere(): string {
  mkdirSync(join(folder, 'lock'), { recursive: true });
  const file = join(folder, 'lock', '1-elsewhere.json');
  writeFileSync(file, JSON.stringify({ pid: process.pid, start: '1', space: 'another container', since: 'then' }));
  return file;
}

test('in another container: whoever shows life holds it', async () => {
  const file = announceElsewhere();
  const beat = setInterval(() => utimesSync(file, new Date(), new Date()), 200);
  try {
    expect(await lockFolder(join(folder, 'lock'))).toEqual({ held: false, holder: `pid ${process.pid}, since then` });
  } finally {
    clearInterval(beat);
  }
});

test('in another container, or before a restart of the machine: whoever shows none does not', async () => {
  const file = announceElsewhere();
  const long_ago = new Date(Date.now() - 3_600_000);
  utimesSync(file, long_ago, long_ago);
  expect((await lockFolder(join(folder, 'lock'))).held).toBe(true);
});

test('a holder shows life', async () => {
  const lock = await lockFolder(join(folder, 'lock'));
  const [name] = readdirSync(join(folder, 'lock'));
  const file = join(folder, 'lock', String(name));
  const before = statSync(file).mtimeMs;
  await vi.waitUntil(() => statSync(file).mtimeMs > before, { timeout: 5_000 });
  if (lock.held) lock.release();
});

test('a folder that cannot be written says so', async () => {
  writeFileSync(join(folder, 'file'), '');
  await expect(openDataDir(join(folder, 'file'))).rejects.toThrow(/^DATA_DIR: .*file can't be used: .*Set DATA_DIR/);
});

test('a secret is made once, for its owner only', () => {
  const file = join(folder, 'secret');
  const made = keepSecret(file, randomSecret);
  expect(made).toMatch(/^[\w-]{43}$/);
  expect(keepSecret(file, () => 'another')).toBe(made);
  expect(readFileSync(file, 'utf8')).toBe(`${made}\n`);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  chmodSync(file, 0o644);
  keepSecret(file, randomSecret);
  expect(statSync(file).mode & 0o777, 'opened up by somebody: closed again').toBe(0o600);
  writeFileSync(file, '');
  expect(() => keepSecret(file, randomSecret)).toThrow(/is empty/);
});

test('where it is', () => {
  expect(locateDataDir('/srv/data', '/work')).toBe('/srv/data');
  expect(locateDataDir('data', '/work')).toBe('/work/data');
  expect(locateDataDir(null, tmpdir())).toBe(join(tmpdir(), '.data'));
});

test.runIf(is_root)(
  'as root in a folder that others cannot enter: below /var/lib/oncepay, for each folder its own',
  () => {
    chmodSync(folder, 0o700);
    mkdirSync(join(folder, 'a', 'oncepay'), { recursive: true });
    mkdirSync(join(folder, 'b', 'oncepay'), { recursive: true });
    const [a, b] = ['a', 'b'].map((name) => locateDataDir(null, join(folder, name, 'oncepay')));
    expect(a).toMatch(/^\/var\/lib\/oncepay\/oncepay-[0-9a-f]{8}$/);
    expect(b).not.toBe(a);
    chmodSync(folder, 0o711);
    expect(locateDataDir(null, join(folder, 'a', 'oncepay'))).toBe(join(folder, 'a', 'oncepay', '.data'));
  },
);
