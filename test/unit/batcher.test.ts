import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type BatcherOptions, createBatcher, QueueFull } from '../../src/database/batcher.js';

interface Item {
  readonly key: string;
  readonly value: number;
}

/** A statement that stands still until it is told to go on, and keeps what it was given. */
function heldStatement() {
  const batches: (readonly Item[])[] = [];
  const waiting: (() => void)[] = [];
  return {
    batches,
    run: (items: readonly Item[]): Promise<readonly number[]> => {
      batches.push(items);
      return new Promise((resolve) => waiting.push(() => resolve(items.map(({ value }) => value * 2))));
    },
    async finishOne(): Promise<void> {
      while (waiting.length === 0) await nextTurn();
      waiting.shift()!();
    },
  };
}

function batcherOf(run: BatcherOptions<Item, number>['run'], options: Partial<BatcherOptions<Item, number>> = {}) {
  return createBatcher({
    name: 'test',
    run,
    max_batch: 100,
    max_queue: 1000,
    max_concurrent: 1,
    overtake_after_ms: 60_000,
    keysOf: (item: Item) => [item.key],
    ...options,
  });
}

const items = (count: number): Item[] => Array.from({ length: count }, (_, n) => ({ key: `k${n}`, value: n }));
const databaseError = (code: string) => Object.assign(new Error(`database says ${code}`), { code });

describe('grouping', () => {
  it('a lone call waits for nobody: its statement runs in the next turn', async () => {
    const statement = heldStatement();
    const result = batcherOf(statement.run).submit({ key: 'a', value: 7 });
    await nextTurn();
    await nextTurn();
    expect(statement.batches).toEqual([[{ key: 'a', value: 7 }]]);
    await statement.finishOne();
    expect(await result).toBe(14);
  });

  it('a crowd of one turn shares a statement; who comes while it is under way shares the next', async () => {
    const statement = heldStatement();
    const batcher = batcherOf(statement.run);
    const first = items(50).map((item) => batcher.submit(item));
    await nextTurn();
    await nextTurn();
    const second = items(30).map((item) => batcher.submit(item));
    await nextTurn();
    expect(statement.batches.map(({ length }) => length)).toEqual([50]);
    expect(batcher.queued).toBe(30);
    await statement.finishOne();
    await Promise.all(first);
    await statement.finishOne();
    expect(await Promise.all(second)).toEqual(items(30).map(({ value }) => value * 2));
    expect(statement.batches.map(({ length }) => length)).toEqual([50, 30]);
    expect(batcher.queued).toBe(0);
  });

  it('a second statement runs beside the first where it is full, and otherwise once the first has taken long', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const statement = heldStatement();
    const batcher = batcherOf(statement.run, { max_batch: 4, max_concurrent: 3, overtake_after_ms: 20 });
    const sizes = async (): Promise<number[]> => {
      await nextTurn();
      await nextTurn();
      return statement.batches.map(({ length }) => length);
    };
    const results = items(10).map((item) => batcher.submit(item));
    expect(await sizes()).toEqual([4, 4]);
    vi.advanceTimersByTime(19);
    expect(await sizes()).toEqual([4, 4]);
    vi.advanceTimersByTime(1);
    expect(await sizes()).toEqual([4, 4, 2]);
    for (let n = 0; n < 3; n += 1) await statement.finishOne();
    expect(await Promise.all(results)).toEqual(items(10).map(({ value }) => value * 2));
    // What was slow is over: one at a time again.
    const later = [batcher.submit({ key: 'a', value: 1 })];
    await sizes();
    later.push(batcher.submit({ key: 'b', value: 2 }));
    expect(await sizes()).toEqual([4, 4, 2, 1]);
    for (let n = 0; n < 2; n += 1) await statement.finishOne();
    expect(await Promise.all(later)).toEqual([2, 4]);
  });

  it('batches have a limit, and so many run at once', async () => {
    const statement = heldStatement();
    const batcher = batcherOf(statement.run, { max_batch: 4, max_concurrent: 2 });
    const results = items(10).map((item) => batcher.submit(item));
    await nextTurn();
    await nextTurn();
    expect(statement.batches.map(({ length }) => length)).toEqual([4, 4]);
    for (let n = 0; n < 3; n += 1) await statement.finishOne();
    expect(await Promise.all(results)).toEqual(items(10).map(({ value }) => value * 2));
    expect(statement.batches.map(({ length }) => length)).toEqual([4, 4, 2]);
  });

  it('items of one key never share a batch, and keep their order', async () => {
    const statement = heldStatement();
    const batcher = batcherOf(statement.run);
    const given = [
      { key: 'a', value: 1 },
      { key: 'a', value: 2 },
      { key: 'b', value: 3 },
      { key: 'a', value: 4 },
    ];
    const results = given.map((item) => batcher.submit(item));
    for (let n = 0; n < 3; n += 1) await statement.finishOne();
    expect(await Promise.all(results)).toEqual([2, 4, 6, 8]);
    expect(statement.batches.map((batch) => batch.map(({ value }) => value))).toEqual([[1, 3], [2], [4]]);
  });

  it('tells the size of each batch', async () => {
    const sizes: number[] = [];
    const batcher = batcherOf(async (batch) => batch.map(() => 0), {
      max_batch: 3,
      onBatch: (size) => sizes.push(size),
    });
    await Promise.all(items(7).map((item) => batcher.submit(item)));
    expect(sizes).toEqual([3, 3, 1]);
  });

  it('refuses before it grows without bound, and takes again when there is room', async () => {
    const statement = heldStatement();
    const batcher = batcherOf(statement.run, { max_batch: 2, max_queue: 3 });
    const taken = items(3).map((item) => batcher.submit(item));
    await expect(batcher.submit({ key: 'x', value: 0 })).rejects.toBeInstanceOf(QueueFull);
    for (let n = 0; n < 2; n += 1) await statement.finishOne();
    await Promise.all(taken);
    const late = batcher.submit({ key: 'x', value: 5 });
    await statement.finishOne();
    expect(await late).toBe(10);
  });
});

describe('errors', () => {
  it.each(['22021', '23514', '23505', '22003'])('a bad row (%s) fails alone', async (code) => {
    const runs: number[] = [];
    const batcher = batcherOf(async (batch) => {
      runs.push(batch.length);
      if (batch.some(({ value }) => value % 4 === 3)) throw databaseError(code);
      return batch.map(({ value }) => value * 2);
    });
    const results = await Promise.allSettled(items(8).map((item) => batcher.submit(item)));
    for (const [n, result] of results.entries()) {
      if (n % 4 === 3) expect(result).toMatchObject({ status: 'rejected', reason: { code } });
      else expect(result).toEqual({ status: 'fulfilled', value: n * 2 });
    }
    expect(runs).toEqual([8, 1, 1, 1, 1, 1, 1, 1, 1]);
  });

  it.each(['40001', '40P01'])('contention (%s) runs the whole batch again, a few times', async (code) => {
    let runs = 0;
    const batcher = batcherOf(async (batch) => {
      runs += 1;
      if (runs < 5) throw databaseError(code);
      return batch.map(({ value }) => value);
    });
    expect(await Promise.all(items(3).map((item) => batcher.submit(item)))).toEqual([0, 1, 2]);
    expect(runs).toBe(5);
  });

  it('contention without end is an error for all', async () => {
    let runs = 0;
    const batcher = batcherOf(async () => {
      runs += 1;
      throw databaseError('40P01');
    });
    const results = await Promise.allSettled(items(3).map((item) => batcher.submit(item)));
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    expect(runs).toBe(5);
  });

  it.each([
    databaseError('57P01'),
    databaseError('08006'),
    databaseError('ECONNRESET'),
    databaseError('EPIPE'),
    new Error('Connection terminated unexpectedly'),
  ])('a lost connection (%s) leaves the outcome unknown: once more, with the same items', async (error) => {
    const seen: (readonly Item[])[] = [];
    const batcher = batcherOf(async (batch) => {
      seen.push(batch);
      if (seen.length === 1) throw error;
      return batch.map(({ value }) => value);
    });
    expect(await Promise.all(items(3).map((item) => batcher.submit(item)))).toEqual([0, 1, 2]);
    expect(seen).toEqual([items(3), items(3)]);

    const away = batcherOf(async () => Promise.reject(error));
    await expect(away.submit({ key: 'a', value: 1 })).rejects.toBe(error);
  });

  it('anything else is an error for the batch, and not run again', async () => {
    let runs = 0;
    const error = databaseError('42703');
    const batcher = batcherOf(async (batch) => {
      runs += 1;
      if (runs === 1) throw error;
      return batch.map(({ value }) => value);
    });
    const results = await Promise.allSettled(items(3).map((item) => batcher.submit(item)));
    expect(results.map((result) => (result.status === 'rejected' ? (result.reason as unknown) : null))).toEqual([
      error,
      error,
      error,
    ]);
    expect(runs).toBe(1);
    expect(await batcher.submit({ key: 'a', value: 1 })).toBe(1);
  });

  it('an answer of another length is a defect: nobody gets somebody else’s result', async () => {
    const batcher = batcherOf(async () => [1]);
    const results = await Promise.allSettled(items(2).map((item) => batcher.submit(item)));
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });

  it('a statement that throws at once stops nothing', async () => {
    let runs = 0;
    const batcher = batcherOf((batch) => {
      runs += 1;
      if (runs === 1) throw new TypeError('defect');
      return Promise.resolve(batch.map(({ value }) => value));
    });
    await expect(batcher.submit({ key: 'a', value: 1 })).rejects.toThrow('defect');
    expect(await batcher.submit({ key: 'a', value: 1 })).toBe(1);
  });
});

describe('whatever the grouping', () => {
  it('each item is run once, alone with its key, and gets its own result: as one at a time', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.record({
          max_batch: fc.integer({ min: 1, max: 12 }),
          max_concurrent: fc.integer({ min: 1, max: 3 }),
          // What comes in one turn, turn by turn; few keys, so that they meet.
          turns: fc.array(fc.array(fc.record({ key: fc.constantFrom('a', 'b', 'c', 'd'), bad: fc.nat(9) }))),
          overtake_after_ms: fc.constantFrom(1, 1_000),
          slowness: fc.array(fc.nat(3), { minLength: 1 }),
        }),
        async ({ max_batch, max_concurrent, overtake_after_ms, turns, slowness }) => {
          let running = 0;
          let runs = 0;
          const done: number[] = [];
          const batcher = createBatcher<Item & { bad: boolean }, number>({
            name: 'test',
            max_batch,
            max_concurrent,
            overtake_after_ms,
            max_queue: 10_000,
            keysOf: ({ key }) => [key],
            run: async (batch) => {
              running += 1;
              expect(running).toBeLessThanOrEqual(max_concurrent);
              expect(batch.length).toBeLessThanOrEqual(max_batch);
              expect(new Set(batch.map(({ key }) => key)).size).toBe(batch.length);
              for (let n = slowness[runs++ % slowness.length]!; n > 0; n -= 1) await nextTurn();
              running -= 1;
              if (batch.some(({ bad }) => bad)) throw databaseError('23514');
              done.push(...batch.map(({ value }) => value));
              return batch.map(({ value }) => value * 2);
            },
          });
          const given = turns.map((turn, t) =>
            turn.map(({ key, bad }, n) => ({ key, bad: bad === 0, value: t * 1000 + n })),
          );
          const results: Promise<PromiseSettledResult<number>[]>[] = [];
          for (const turn of given) {
            results.push(Promise.allSettled(turn.map((item) => batcher.submit(item))));
            await nextTurn();
          }
          const settled = (await Promise.all(results)).flat();
          for (const [n, { bad, value }] of given.flat().entries()) {
            if (bad) expect(settled[n]).toMatchObject({ status: 'rejected', reason: { code: '23514' } });
            else expect(settled[n]).toEqual({ status: 'fulfilled', value: value * 2 });
          }
          const good = given.flat().filter(({ bad }) => !bad);
          expect([...done].sort()).toEqual(good.map(({ value }) => value).sort());
        },
      ),
      { numRuns: 150 },
    );
  });
});
