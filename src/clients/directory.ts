import { timingSafeEqual } from 'node:crypto';
import { OncepayError } from '../domain/errors.js';
import { apiKeyHashName } from './api-key.js';
import type { KeyRow } from './key-store.js';

/** Who a request comes from. */
export interface AuthenticatedClient {
  readonly id: string;
  readonly scopes: readonly string[];
  readonly api_key_id: string;
}

export interface DirectoryOptions {
  /** Asks the database about these hashes; answers only keys that are valid now. */
  readonly query: (hashes: readonly Buffer[]) => Promise<readonly KeyRow[]>;
  /** How long a found key is trusted without asking again. */
  readonly ttl_ms?: number;
  readonly max_entries?: number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

interface Entry {
  readonly client: AuthenticatedClient;
  readonly valid_until: number;
  /** From then on it is asked about again while it still counts, so that no busy key ever waits for the database. */
  readonly refresh_from: number;
}

interface Waiter {
  readonly hash: Buffer;
  readonly promise: Promise<AuthenticatedClient | null>;
  readonly resolve: (client: AuthenticatedClient | null) => void;
  readonly reject: (error: unknown) => void;
}

/** A revoked key works for at most this long, also where no notification arrives (PgBouncer, a lost connection). */
export const KEY_CACHE_TTL_MS = 1000;
const MAX_ENTRIES = 10_000;
const MAX_WAITING = 10_000;
const MAX_BATCH = 200;

/**
 * API keys by their hash, so that the hot path needs no query per request. One query is under way at a time and asks
 * about everything that came meanwhile: a flood of unknown keys costs the database one statement after another, not
 * one per request. Keys that are not found are not remembered: a new key works at once.
 */
export class KeyDirectory {
  private readonly entries = new Map<string, Entry>();
  private readonly waiting = new Map<string, Waiter>();
  /** What the query under way asks about, and as of which generation. */
  private underWay: { readonly batch: ReadonlyMap<string, Waiter>; readonly generation: number } | null = null;
  private asking = false;
  /** Raised whenever keys may have changed: an answer that was asked for before is not kept. */
  private generation = 0;
  private readonly ttl_ms: number;
  private readonly max_entries: number;
  private readonly now: () => number;

  constructor(private readonly options: DirectoryOptions) {
    this.ttl_ms = options.ttl_ms ?? KEY_CACHE_TTL_MS;
    this.max_entries = options.max_entries ?? MAX_ENTRIES;
    this.now = options.now ?? (() => performance.now());
  }

  /**
   * The client of a key: at once where it is known, else a promise; null where the key is not valid. The promise rejects
   * with OncepayError `unavailable` when too many wait, and with whatever the query throws.
   */
  find(key: string): AuthenticatedClient | Promise<AuthenticatedClient | null> {
    const name = apiKeyHashName(key);
    const entry = this.entries.get(name);
    const now = this.now();
    if (entry === undefined || entry.valid_until <= now) return this.lookUp(name);
    // What comes of it is kept for the next; nobody waits for it, and nobody but them needs to hear of a failure.
    if (entry.refresh_from <= now) this.lookUp(name).catch(() => undefined);
    return entry.client;
  }

  /** Keys or clients have changed: nothing that was read before counts any more. */
  forget(): void {
    this.generation += 1;
    this.entries.clear();
  }

  private lookUp(name: string): Promise<AuthenticatedClient | null> {
    const asked = this.underWay?.generation === this.generation ? this.underWay.batch.get(name) : undefined;
    const known = asked ?? this.waiting.get(name);
    if (known !== undefined) return known.promise;
    if (this.waiting.size >= MAX_WAITING) {
      const problem = new OncepayError('unavailable', 'Too many requests wait for authentication.', {
        retry_after_s: 1,
      });
      return Promise.reject(problem);
    }
    const { promise, resolve, reject } = promiseWithResolvers<AuthenticatedClient | null>();
    this.waiting.set(name, { hash: Buffer.from(name, 'base64'), promise, resolve, reject });
    if (!this.asking) void this.askInTurns();
    return promise;
  }

  private async askInTurns(): Promise<void> {
    this.asking = true;
    // Bounded by the waiters, which are bounded.
    while (this.waiting.size > 0) {
      const batch = new Map([...this.waiting].slice(0, MAX_BATCH));
      for (const name of batch.keys()) this.waiting.delete(name);
      await this.ask(batch);
    }
    this.asking = false;
  }

  private async ask(batch: ReadonlyMap<string, Waiter>): Promise<void> {
    const { generation } = this;
    this.underWay = { batch, generation };
    const asked_at = this.now();
    try {
      const rows = await this.options.query([...batch.values()].map((waiter) => waiter.hash));
      const found = new Map(rows.map((row) => [row.key_hash.toString('base64'), row]));
      for (const [name, waiter] of batch) {
        const row = found.get(name);
        const client = row !== undefined && timingSafeEqual(row.key_hash, waiter.hash) ? clientOf(row) : null;
        if (generation === this.generation) {
          this.entries.delete(name);
          if (row !== undefined && client !== null) this.keep(name, client, asked_at, row.expires_in_ms);
        }
        waiter.resolve(client);
      }
    } catch (error) {
      for (const waiter of batch.values()) waiter.reject(error);
    } finally {
      this.underWay = null;
    }
  }

  private keep(name: string, client: AuthenticatedClient, asked_at: number, expires_in_ms: number | null): void {
    const lasts_ms = Math.min(this.ttl_ms, expires_in_ms ?? Infinity);
    if (this.entries.size >= this.max_entries) {
      const [oldest] = this.entries.keys();
      if (oldest !== undefined) this.entries.delete(oldest);
    }
    this.entries.set(name, {
      client,
      valid_until: asked_at + lasts_ms,
      refresh_from: asked_at + lasts_ms / 2,
    });
  }
}

function clientOf(row: KeyRow): AuthenticatedClient {
  return { id: row.client_id, scopes: row.scopes, api_key_id: row.api_key_id };
}

/** Promise.withResolvers, which Node 20 does not have. */
function promiseWithResolvers<T>(): {
  promise: Promise<T>;
  resolve: (value: T) => void;
  reject: (error: unknown) => void;
} {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((onValue, onError) => {
    resolve = onValue;
    reject = onError;
  });
  return { promise, resolve, reject };
}
