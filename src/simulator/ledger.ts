import { createReadStream, existsSync } from 'node:fs';
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Entry } from './records.js';

interface Waiter {
  resolve(): void;
  reject(error: Error): void;
}

/**
 * An append-only file of entries, one JSON text a line. Lines that are appended while a write is under way go out
 * together with one sync. What was synced survives kill -9 and a loss of power; a torn last line, which nobody was
 * ever told of, is cut off when the file is opened.
 */
export class Ledger {
  #lines: string[] = [];
  #waiters: Waiter[] = [];
  #needsSync = false;
  #running: Promise<void> | null = null;
  #failure: Error | null = null;
  #closed = false;

  private constructor(
    readonly file: string,
    private readonly handle: FileHandle,
    private size_bytes: number,
  ) {}

  /**
   * Opens or makes the file and hands every entry in it to `replay`, oldest first.
   * @throws Error where a line in the middle can't be read: nothing is guessed about money.
   */
  static async open(path: string, replay: (entry: Entry) => void): Promise<Ledger> {
    const file = resolve(path);
    await mkdir(dirname(file), { recursive: true });
    const size_bytes = await readEntries(file, replay);
    const handle = await open(file, 'a', 0o600);
    await handle.truncate(size_bytes);
    await handle.sync();
    await syncFolder(dirname(file));
    return new Ledger(file, handle, size_bytes);
  }

  /** Appends an entry. `sync`: `synced()` waits until it is safe on disk; without, it may be lost with the machine. */
  append(entry: Entry, options: { readonly sync: boolean }): void {
    if (this.#failure || this.#closed) return;
    this.#lines.push(`${JSON.stringify(entry)}\n`);
    this.#needsSync ||= options.sync;
    this.#running ??= this.#run();
  }

  /**
   * Resolves when all that was appended so far is on disk.
   * @throws Error for ever after a failed write, and once it is closed: what is in memory may then be ahead of the file,
   * and must not be told.
   */
  async synced(): Promise<void> {
    if (this.#failure) throw this.#failure;
    if (this.#closed) throw new Error('the ledger is closed');
    if (!this.#running) return;
    await new Promise<void>((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#running;
    await this.handle.close();
  }

  async #run(): Promise<void> {
    // Lets the entries of one turn of the event loop share a write.
    await Promise.resolve();
    while (this.#lines.length > 0) {
      const text = this.#lines.join('');
      const waiters = this.#waiters;
      const sync = this.#needsSync;
      this.#lines = [];
      this.#waiters = [];
      this.#needsSync = false;
      try {
        await this.#write(text, sync);
        // Whoever came during the write waits for lines of this write at most, unless more were appended since.
        for (const waiter of waiters) waiter.resolve();
      } catch (error) {
        this.#fail(error, waiters);
        break;
      }
    }
    this.#running = null;
    for (const waiter of this.#waiters.splice(0)) {
      if (this.#failure) waiter.reject(this.#failure);
      else waiter.resolve();
    }
  }

  async #write(text: string, sync: boolean): Promise<void> {
    const { size } = await this.handle.stat();
    if (size !== this.size_bytes) throw new Error(`another process has written to the ledger ${this.file}`);
    await this.handle.appendFile(text);
    this.size_bytes += Buffer.byteLength(text);
    if (sync) await this.handle.datasync();
  }

  #fail(error: unknown, waiters: readonly Waiter[]): void {
    this.#failure = new Error(`the ledger ${this.file} can't be written`, { cause: error });
    this.#lines = [];
    for (const waiter of waiters) waiter.reject(this.#failure);
  }
}

/** Returns the length in bytes up to the end of the last whole line. */
async function readEntries(file: string, replay: (entry: Entry) => void): Promise<number> {
  if (!existsSync(file)) return 0;
  let rest: Buffer = Buffer.alloc(0);
  let whole_bytes = 0;
  let line_number = 0;
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
    let start = 0;
    const data = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk;
    for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
      line_number += 1;
      replay(parseLine(file, line_number, data.toString('utf8', start, end)));
      whole_bytes += end + 1 - start;
      start = end + 1;
    }
    rest = data.subarray(start);
  }
  return whole_bytes;
}

function parseLine(file: string, line_number: number, text: string): Entry {
  try {
    return JSON.parse(text) as Entry;
  } catch (error) {
    throw new Error(`the ledger ${file} is damaged in line ${line_number}; move it away to start with an empty one`, {
      cause: error,
    });
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
