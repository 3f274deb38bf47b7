/** Timers that end together. A sleep that is cut short rejects: whoever slept must not go on. */
export class Timers {
  readonly #open = new Map<NodeJS.Timeout, (() => void) | null>();
  #closed = false;

  after(delay_ms: number, run: () => void): void {
    this.#start(delay_ms, run, null);
  }

  /** @throws Error when the timers are closed meanwhile. */
  async sleep(delay_ms: number): Promise<void> {
    if (delay_ms <= 0) return;
    await new Promise<void>((resolve, reject) => {
      this.#start(delay_ms, resolve, () => reject(new Error('the simulator ends')));
    });
  }

  close(): void {
    this.#closed = true;
    for (const [timer, cut] of this.#open) {
      clearTimeout(timer);
      cut?.();
    }
    this.#open.clear();
  }

  #start(delay_ms: number, run: () => void, cut: (() => void) | null): void {
    if (this.#closed) {
      cut?.();
      return;
    }
    const timer = setTimeout(
      () => {
        this.#open.delete(timer);
        run();
      },
      Math.max(0, delay_ms),
    );
    this.#open.set(timer, cut);
  }
}
