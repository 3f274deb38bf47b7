import pg from 'pg';

const CONNECT_LIMIT_MS = 5_000;
const RECONNECT_AFTER_MS = 5_000;

export interface ListenerOptions {
  /** Null: nobody can be heard from there, and nothing is tried. */
  readonly connection_string: string | null;
  /** What the database calls the connection, for people who look at it. */
  readonly application_name: string;
  readonly channel: string;
  /** After a notification, and after each connect: what happened without a connection was not heard. */
  readonly onEvent: () => void;
  readonly onError: (error: unknown) => void;
  readonly reconnect_after_ms?: number;
}

/**
 * Hears NOTIFY on a connection of its own, and connects again whenever that is lost. Where there is none (a pooler in
 * transaction mode, an outage, no connection to spare) nothing waits for it and nothing fails by it: whoever listens
 * has another way to find out, only later.
 */
export class Listener {
  private client: pg.Client | null = null;
  private timer: NodeJS.Timeout | null = null;
  private stopped = false;
  /** Said once per outage, not at every attempt. */
  private complained = false;
  private is_listening = false;

  constructor(private readonly options: ListenerOptions) {}

  get listening(): boolean {
    return this.is_listening;
  }

  /** Resolves after the first attempt to connect. */
  async start(): Promise<void> {
    const { connection_string } = this.options;
    if (this.stopped || connection_string === null) return;
    const client = new pg.Client({
      connectionString: connection_string,
      application_name: this.options.application_name,
      connectionTimeoutMillis: CONNECT_LIMIT_MS,
      keepAlive: true,
    });
    this.client = client;
    client.on('notification', () => this.options.onEvent());
    client.on('error', (error) => this.lost(client, error));
    client.on('end', () => this.lost(client, null));
    try {
      await client.connect();
      await client.query(`listen ${this.options.channel}`);
      this.is_listening = true;
      this.complained = false;
      this.options.onEvent();
    } catch (error) {
      this.lost(client, error);
    }
  }

  async stop(): Promise<void> {
    this.stopped = true;
    if (this.timer !== null) clearTimeout(this.timer);
    const { client } = this;
    this.client = null;
    this.is_listening = false;
    await client?.end().catch(() => undefined);
  }

  private lost(client: pg.Client, error: unknown): void {
    if (this.client !== client) return;
    this.client = null;
    this.is_listening = false;
    if (error !== null && !this.complained) this.options.onError(error);
    this.complained = true;
    client.end().catch(() => undefined);
    if (this.stopped) return;
    this.timer = setTimeout(() => void this.start(), this.options.reconnect_after_ms ?? RECONNECT_AFTER_MS);
    this.timer.unref();
  }
}
