import type { Logger } from '../logger.js';

export interface RunPoolOptions {
  /** Runs under way at once. Each may wait for a provider, and holds no database connection meanwhile. */
  readonly max_running: number;
  /** Runs that wait. What comes on top is not taken: the intent is durable, and recovery picks it up. */
  readonly max_waiting: number;
  readonly logger: Logger;
}

/**
 * Provider calls of commands that came by Kafka, after their intents are committed: bounded, and apart from the
 * consumers, so that a slow provider does not stop a partition.
 */
export class RunPool {
  private readonly waiting: (() => Promise<void>)[] = [];
  private readonly running = new Set<Promise<void>>();
  private stopped = false;

  constructor(private readonly options: RunPoolOptions) {}

  /** @returns false where it was not taken */
  submit(run: () => Promise<void>): boolean {
    if (this.stopped || this.waiting.length >= this.options.max_waiting) return false;
    this.waiting.push(run);
    this.next();
    return true;
  }

  /** Waits for the runs under way. What still waits is left to recovery. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.waiting.length = 0;
    await Promise.all(this.running);
  }

  private next(): void {
    while (this.running.size < this.options.max_running) {
      const run = this.waiting.shift();
      if (run === undefined) return;
      const running: Promise<void> = run()
        .catch((error: unknown) => {
          this.options.logger.error(
            { err: error },
            'a command failed after its intent was stored; recovery takes it up',
          );
        })
        .then(() => {
          this.running.delete(running);
          this.next();
        });
      this.running.add(running);
    }
  }
}
