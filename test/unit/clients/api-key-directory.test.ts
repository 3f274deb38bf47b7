import { describe, expect, it } from 'vitest';
import { hashApiKey } from '../../../src/clients/api-key.js';
import { type AuthenticatedClient, KeyDirectory } from '../../../src/clients/directory.js';
import type { KeyRow } from '../../../src/clients/key-store.js';

/** A database whose answers the test gives, one query after another. */
class Queries {
  readonly asked: (readonly Buffer[])[] = [];
  private readonly waiting: { resolve: (rows: readonly KeyRow[]) => void; reject: (error: unknown) => void }[] = [];

  readonly query = (hashes: readonly Buffer[]): Promise<readonly KeyRow[]> => {
    this.asked.push(hashes);
    return new Promise((resolve, reject) => this.waiting.push({ resolve, reject }));
  };

  answer(...keys: string[]): Promise<void> {
    this.waiting.shift()?.resolve(keys.map((key) => row(key)));
    return settled();
  }

  answerRow(answer: KeyRow): Promise<void> {
    this.waiting.shift()?.resolve([answer]);
    return settled();
  }

  fail(error: Error): Promise<void> {
    this.waiting.shift()?.reject(error);
    return settled();
  }
}

function row(key: string, over: Partial<KeyRow> = {}): KeyRow {
  const hash = hashApiKey(key);
  return {
    api_key_id: `id of ${key}`,
    client_id: `client of ${key}`,
    key_hash: hash,
    scopes: [],
    expires_in_ms: null,
    ...over,
  };
}

/** After everything that was already resolved. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function make(options: { ttl_ms?: number; max_entries?: number } = {}) {
  const clock = { now_ms: 0 };
  const queries = new Queries();
  const directory = new KeyDirectory({ query: queries.query, now: () => clock.now_ms, ttl_ms: 1000, ...options });
  const idOf = async (found: ReturnType<KeyDirectory['find']>): Promise<string | null> => (await found)?.id ?? null;
  const isKnown = (key: string): boolean => !(directory.find(key) instanceof Promise);
  return { clock, queries, directory, idOf, isKnown };
}

describe('the directory of API keys', () => {
  it('asks once, then answers at once for a second', async () => {
    const { clock, queries, directory, idOf } = make();
    const first = directory.find('a');
    await queries.answer('a');
    expect(await idOf(first)).toBe('client of a');
    clock.now_ms = 999;
    expect(directory.find('a') as AuthenticatedClient).toMatchObject({ id: 'client of a', api_key_id: 'id of a' });
    clock.now_ms = 1000;
    expect(directory.find('a')).toBeInstanceOf(Promise);
    expect(queries.asked).toHaveLength(2);
  });

  it('counts the second from when it asked, not from when it was answered', async () => {
    const { clock, queries, directory, isKnown } = make();
    void directory.find('a');
    clock.now_ms = 900;
    await queries.answer('a');
    expect(isKnown('a')).toBe(true);
    clock.now_ms = 1000;
    expect(isKnown('a')).toBe(false);
  });

  it('asks once for many that come together, and for the next crowd in one more query', async () => {
    const { queries, directory, idOf } = make();
    const a = [directory.find('a'), directory.find('a'), directory.find('a')];
    const rest = ['b', 'c', 'unknown', 'b'].map((key) => directory.find(key));
    await queries.answer('a');
    await queries.answer('b', 'c');
    expect(await Promise.all(a.map(idOf))).toEqual(['client of a', 'client of a', 'client of a']);
    expect(await Promise.all(rest.map(idOf))).toEqual(['client of b', 'client of c', null, 'client of b']);
    expect(queries.asked.map((hashes) => hashes.length)).toEqual([1, 3]);
  });

  it('does not remember what it did not find', async () => {
    const { queries, directory, idOf } = make();
    const before = directory.find('new');
    await queries.answer();
    expect(await idOf(before)).toBeNull();
    const after = directory.find('new');
    await queries.answer('new');
    expect(await idOf(after)).toBe('client of new');
  });

  it('passes a failure on to those who waited, and asks again for the next', async () => {
    const { queries, directory, idOf } = make();
    const failed = Promise.all(['a', 'a'].map(async (key) => directory.find(key))).then(
      () => 'found',
      (error: unknown) => (error as Error).message,
    );
    await queries.fail(new Error('away'));
    expect(await failed).toBe('away');
    const again = directory.find('a');
    await queries.answer('a');
    expect(await idOf(again)).toBe('client of a');
  });

  it('forgets at once when keys have changed, answers under way included', async () => {
    const { queries, directory, idOf, isKnown } = make();
    void directory.find('a');
    await queries.answer('a');
    const underWay = directory.find('b');
    directory.forget();
    await queries.answer('b');
    expect(await idOf(underWay)).toBe('client of b');
    expect(isKnown('b')).toBe(false);
    expect(isKnown('a')).toBe(false);
  });

  it('remembers a key no longer than it is valid', async () => {
    const { clock, queries, directory, isKnown } = make();
    void directory.find('a');
    await queries.answerRow(row('a', { expires_in_ms: 10 }));
    clock.now_ms = 9;
    expect(isKnown('a')).toBe(true);
    clock.now_ms = 10;
    expect(isKnown('a')).toBe(false);
  });

  it('holds so many and no more, the oldest going first', async () => {
    const { queries, directory, isKnown } = make({ max_entries: 2 });
    for (const key of ['a', 'b', 'c']) {
      void directory.find(key);
      await queries.answer(key);
    }
    expect(['b', 'c'].map(isKnown)).toEqual([true, true]);
    expect(isKnown('a')).toBe(false);
  });

  it('says that it is not available when too many wait', async () => {
    const { directory } = make();
    void directory.find('first');
    for (let i = 0; i < 10_000; i += 1) void directory.find(`key ${i}`);
    await expect(directory.find('one more')).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('asks again before the time is over, without anybody waiting', async () => {
    const { clock, queries, directory, isKnown } = make();
    void directory.find('a');
    await queries.answer('a');
    clock.now_ms = 499;
    expect(isKnown('a')).toBe(true);
    expect(queries.asked).toHaveLength(1);
    clock.now_ms = 500;
    expect([isKnown('a'), isKnown('a')]).toEqual([true, true]);
    expect(queries.asked).toHaveLength(2);
    await queries.fail(new Error('away'));
    expect(isKnown('a')).toBe(true);
    await queries.answer('a');
    clock.now_ms = 1499;
    expect(isKnown('a')).toBe(true);
    await queries.answer();
    expect(isKnown('a')).toBe(false);
  });

  it('does not take part in a question from before a change', async () => {
    const { queries, directory, idOf } = make();
    const before = directory.find('a');
    directory.forget();
    const after = directory.find('a');
    await queries.answer('a');
    await queries.answer();
    expect(await idOf(before)).toBe('client of a');
    expect(await idOf(after)).toBeNull();
  });
});
