import { setImmediate as nextTurn, setTimeout as delay } from 'node:timers/promises';

/**
 * Group commit: calls that come while a statement is under way share the next one, its round trip, its plan and its
 * WAL flush. A lone call waits for nobody. Knows nothing of what it carries.
 */
export interface Batcher<Item, Result> {
  /** @throws QueueFull before memory grows; otherwise whatever `run` throws for this item. */
  submit(item: Item): Promise<Result>;
  readonly queued: number;
}

export interface BatcherOptions<Item, Result> {
  readonly name: string;
  /** One statement over all items; answers in the items' order. Must recognise its own work when run again. */
  readonly run: (items: readonly Item[]) => Promise<readonly Result[]>;
  readonly max_batch: number;
  readonly max_queue: number;
  /** Statements under way at once. */
  readonly max_concurrent: number;
  /**
   * One statement at a time makes larger batches of the same calls, which cost less. Another starts beside it only if it is
   * full, or if the one under way has taken this long: that one may wait for a lock, for which the others must not wait too.
   */
  readonly overtake_after_ms: number;
  /** Items that share a key never share a batch: an UPDATE applies once per row, however many of its inputs match. */
  readonly keysOf?: (item: Item) => readonly string[];
  readonly onBatch?: (size: number) => void;
}

/** Back-pressure: answered as 503 with `Retry-After`. */
export class QueueFull extends Error {
  override readonly name = 'QueueFull';
}

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly resolve: (result: Result) => void;
  readonly reject: (reason: unknown) => void;
}

const MAX_TRIES = 5;

export function createBatcher<Item, Result>(options: BatcherOptions<Item, Result>): Batcher<Item, Result> {
  let queue: Waiting<Item, Result>[] = [];
  let running = 0;
  /** The running ones that have taken long. */
  const slow = new Set<object>();
  let scheduled = false;

  function mayStart(): boolean {
    if (queue.length === 0 || running >= options.max_concurrent) return false;
    return running === slow.size || queue.length >= options.max_batch;
  }

  function schedule(): void {
    if (scheduled || !mayStart()) return;
    scheduled = true;
    // One turn of the event loop: everything that was read from sockets in this turn comes along.
    void nextTurn().then(() => {
      scheduled = false;
      while (mayStart()) void runBatch(take());
    });
  }

  function take(): Waiting<Item, Result>[] {
    if (!options.keysOf) return queue.splice(0, options.max_batch);
    const batch: Waiting<Item, Result>[] = [];
    const left: Waiting<Item, Result>[] = [];
    const keys = new Set<string>();
    for (const waiting of queue) {
      const own = options.keysOf(waiting.item);
      if (batch.length < options.max_batch && !own.some((key) => keys.has(key))) {
        for (const key of own) keys.add(key);
        batch.push(waiting);
      } else left.push(waiting);
    }
    queue = left;
    return batch;
  }

  async function runBatch(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    running += 1;
    options.onBatch?.(batch.length);
    const timer = setTimeout(() => {
      slow.add(batch);
      schedule();
    }, options.overtake_after_ms);
    try {
      await settle(batch);
    } finally {
      clearTimeout(timer);
      slow.delete(batch);
      running -= 1;
      schedule();
    }
  }

  async function settle(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    try {
      const results = await runWithRetries(
        options,
        batch.map((waiting) => waiting.item),
      );
      batch.forEach((waiting, index) => {
        waiting.resolve(results[index] as Result);
      });
    } catch (error) {
      if (batch.length > 1 && isRowsOwnFault(error)) {
        // A bad row fails alone: the others must not pay for it.
        for (const waiting of batch) await settle([waiting]);
        return;
      }
      for (const waiting of batch) waiting.reject(error);
    }
  }

  return {
    submit(item) {
      if (queue.length >= options.max_queue) return Promise.reject(new QueueFull(`${options.name}: queue is full`));
      return new Promise<Result>((resolve, reject) => {
        queue.push({ item, resolve, reject });
        schedule();
      });
    },
    get queued() {
      return queue.length;
    },
  };
}

async function runWithRetries<Item, Result>(
  { name, run }: BatcherOptions<Item, Result>,
  items: readonly Item[],
): Promise<readonly Result[]> {
  for (let tries = 1; ; tries += 1) {
    try {
      const results = await run(items);
      if (results.length !== items.length)
        throw new Error(`${name}: ${results.length} results for ${items.length} items`);
      return results;
    } catch (error) {
      const limit = isContention(error) ? MAX_TRIES : isConnectionLoss(error) ? 2 : 1;
      if (tries >= limit) throw error;
      await delay(Math.random() * 10 * tries);
    }
  }
}

function sqlState(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
}

/** Classes 22 (data) and 23 (constraint): one row's values, not the batch. */
function isRowsOwnFault(error: unknown): boolean {
  return /^2[23][0-9A-Z]{3}$/.test(sqlState(error));
}

function isContention(error: unknown): boolean {
  return sqlState(error) === '40001' || sqlState(error) === '40P01';
}

/** The statement may have committed, or not: running it again finds its own token and ids. */
function isConnectionLoss(error: unknown): boolean {
  const code = sqlState(error);
  return (
    /^(08|57P0)/.test(code) ||
    code === 'ECONNRESET' ||
    code === 'EPIPE' ||
    (error instanceof Error && error.message.startsWith('Connection terminated'))
  );
}
