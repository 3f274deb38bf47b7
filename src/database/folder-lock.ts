import { randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { pidSpace, startOf } from './processes.js';

export type FolderLock =
  | { readonly held: true; readonly release: () => void }
  /** Who has it, for people. */
  | { readonly held: false; readonly holder: string };

/** How often a holder shows that it lives, for those that can't see its process: in other containers. */
const BEAT_MS = 1_000;
const BEATS_WATCHED_MS = 3_500;
/** A sign of life that is older than this is not even watched. */
const BEAT_FORGOTTEN_MS = 60_000;
const TRIES = 5;
/** Who has been there for longer did not step back. */
const AT_ONCE_MS = 2_000;

const Holder = z.object({ pid: z.number().int(), start: z.string(), space: z.string(), since: z.string() });
type Holder = z.output<typeof Holder>;

/**
 * One process at a time, also where it was killed. Each announces itself by a file of its own and then looks for
 * others: of two that come at once at least one sees the other, so both never hold it. Files of the dead are removed;
 * since no file is ever used by a second process, that can't remove a living one's.
 */
export async function lockFolder(folder: string): Promise<FolderLock> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  for (let tries = 1; ; tries++) {
    const name = `${process.pid}-${randomUUID()}.json`;
    const own = join(folder, name);
    announce(own);
    const holder = await findOther(folder, name);
    if (holder === undefined) return hold(own);
    rmSync(own, { force: true });
    const came_at_once = Date.now() - Date.parse(holder.since) < AT_ONCE_MS;
    if (!came_at_once || tries >= TRIES) return { held: false, holder: `pid ${holder.pid}, since ${holder.since}` };
    // Two that came at once may both have stepped back: try again, not in step.
    await delay(20 + Math.random() * 100);
  }
}

function announce(file: string): void {
  const self: Holder = {
    pid: process.pid,
    start: startOf(process.pid) ?? 'unknown',
    space: pidSpace(),
    since: new Date().toISOString(),
  };
  // Under its name it appears whole, so that nobody takes a half-written one for a dead process's.
  writeFileSync(`${file}.new`, JSON.stringify(self), { flag: 'wx', mode: 0o600 });
  renameSync(`${file}.new`, file);
}

function hold(file: string): FolderLock {
  const beat = setInterval(() => {
    const now = new Date();
    try {
      utimesSync(file, now, now);
    } catch {
      // The folder was removed under us: nothing is left to guard.
    }
  }, BEAT_MS);
  beat.unref();
  return {
    held: true,
    release: () => {
      clearInterval(beat);
      rmSync(file, { force: true });
    },
  };
}

async function findOther(folder: string, own: string): Promise<Holder | undefined> {
  for (const name of readdirSync(folder)) {
    if (name === own || !name.endsWith('.json')) continue;
    const file = join(folder, name);
    const holder = readHolder(file);
    if (holder !== undefined && (await isAlive(file, holder))) return holder;
    rmSync(file, { force: true });
  }
  return undefined;
}

/** Undefined: gone meanwhile, or emptied by a loss of power. */
function readHolder(file: string): Holder | undefined {
  try {
    return Holder.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch {
    return undefined;
  }
}

async function isAlive(file: string, holder: Holder): Promise<boolean> {
  if (holder.space === pidSpace()) return startOf(holder.pid) === holder.start;
  // Its pid means nothing here: another container, or before a restart of the machine. See whether it shows life.
  const first = beatOf(file);
  if (first === undefined || Date.now() - first > BEAT_FORGOTTEN_MS) return false;
  await delay(BEATS_WATCHED_MS);
  const later = beatOf(file);
  return later !== undefined && later !== first;
}

function beatOf(file: string): number | undefined {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs;
}
