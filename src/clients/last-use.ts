/** How often the times are written. A key's "last used" is as exact as this. */
const FLUSH_INTERVAL_MS = 30_000;

/**
 * Remembers in memory when each key was last used and writes it now and then: no write per request. Times that could
 * not be written stay for the next round; there is at most one per key.
 */
export class LastUse {
  private used = new Map<string, Date>();
  private readonly timer: NodeJS.Timeout;
  private writing: Promise<void> = Promise.resolve();

  constructor(
    private readonly write: (uses: ReadonlyMap<string, Date>) => Promise<void>,
    private readonly onError: (error: unknown) => void,
    interval_ms = FLUSH_INTERVAL_MS,
  ) {
    this.timer = setInterval(() => void this.flush(), interval_ms);
    this.timer.unref();
  }

  touch(api_key_id: string): void {
    this.used.set(api_key_id, new Date());
  }

  /** Writes what is known now, after what is being written. Never rejects. */
  flush(): Promise<void> {
    this.writing = this.writing.then(() => this.writeOut());
    return this.writing;
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    await this.flush();
  }

  private async writeOut(): Promise<void> {
    if (this.used.size === 0) return;
    const uses = this.used;
    this.used = new Map();
    try {
      await this.write(uses);
    } catch (error) {
      this.onError(error);
      for (const [id, at] of uses) if (!this.used.has(id)) this.used.set(id, at);
    }
  }
}
