import type { Logger } from './logger.js';

/** Started things with the way to end them; ended last first. */
export class Closers {
  private readonly closers: (() => Promise<void> | void)[] = [];

  add(close: () => Promise<void> | void): void {
    this.closers.push(close);
  }

  /** Ends all, also when one of them fails; then the first failure is thrown. */
  async close(): Promise<void> {
    const failures: unknown[] = [];
    for (let close = this.closers.pop(); close !== undefined; close = this.closers.pop()) {
      try {
        await close();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }
}

/** Runs a start with closers of its own. When it fails, what it had started is ended again. */
export async function startOrUndo<T>(logger: Logger, start: (closers: Closers) => Promise<T>): Promise<T> {
  const closers = new Closers();
  try {
    return await start(closers);
  } catch (error) {
    await closers.close().catch((failure: unknown) => logger.error({ err: failure }, 'ending what had started failed'));
    throw error;
  }
}
