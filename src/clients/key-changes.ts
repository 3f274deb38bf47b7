import pg from 'pg';

/** What the triggers of migration `api_key_notify` notify. */
const CHANNEL = 'oncepay_keys_changed';
const RECONNECT_AFTER_MS = 5000;

export interface KeyChangesOptions {
  readonly connectionString: string;
  /** Keys may have changed: after a notification, and after a time without a connection. */
  readonly onChange: () => void;
  readonly onError: (error: unknown) => void;
  readonly reconnect_after_ms?: number;
}

/**
 * Listens for changes of keys and clients on a connection of its own. Without it (PgBouncer in transaction mode, no
 * connection to spare) the directory's time limit holds alone, so nothing waits for it and nothing fails by it.
 */
export class KeyChanges {
  private client: pg.Client | null = null;
  private timer: NodeJS.Timeout | null = null;
  private stopped = false;
  /** Said once per outage, not at every attempt. */
  private complained = false;

  constructor(private readonly options: KeyChangesOptions) {}

  /** Connects, and connects again whenever the connection is lost. Resolves after the first attempt. */
  async start(): Promise<void> {
    if (this.stopped) return;
    const client = new pg.Client({
      connectionString: this.options.connectionString,
      application_name: 'oncepay key changes',
      connectionTimeoutMillis: 5000,
      keepAlive: true,
    });
    this.client = client;
    client.on('notification', () => this.options.onChange());
    client.on('error', (error) => this.lost(client, error));
    client.on('end', () => this.lost(client, null));
    try {
      await client.connect();
      await client.query(`listen ${CHANNEL}`);
      this.complained = false;
      this.options.onChange();
    } catch (error) {
      this.lost(client, error);
    }
  }

  async stop(): Promise<void> {
    this.stopped = true;
    if (this.timer !== null) clearTimeout(this.timer);
    const { client } = this;
    this.client = null;
    await client?.end().catch(this.options.onError);
  }

  private lost(client: pg.Client, error: unknown): void {
    if (this.client !== client) return;
    this.client = null;
    if (error !== null && !this.complained) this.options.onError(error);
    this.complained = true;
    client.end().catch(() => undefined);
    if (this.stopped) return;
    this.timer = setTimeout(() => void this.start(), this.options.reconnect_after_ms ?? RECONNECT_AFTER_MS);
    this.timer.unref();
  }
}
