import pg from 'pg';
import { OUTBOX_CHANNEL } from '../store/outbox.js';

const CONNECT_LIMIT_MS = 5_000;
const RECONNECT_AFTER_MS = 5_000;

export interface OutboxListenerOptions {
  readonly connection_string: string;
  readonly onEvent: () => void;
  readonly onError: (error: unknown) => void;
}

/**
 * Hears NOTIFY on a connection of its own. Where there is none (PgBouncer in transaction mode, an outage) the relay
 * polls more often; nothing waits for this and nothing fails by it.
 */
export class OutboxListener {
  private client: pg.Client | null = null;
  private timer: NodeJS.Timeout | null = null;
  private stopped = false;
  private complained = false;
  private is_listening = false;

  constructor(private readonly options: OutboxListenerOptions) {}

  get listening(): boolean {
    return this.is_listening;
  }

  /** Connects, and connects again whenever the connection is lost. Resolves after the first attempt. */
  async start(): Promise<void> {
    if (this.stopped) return;
    const client = new pg.Client({
      connectionString: this.options.connection_string,
      application_name: 'oncepay outbox',
      connectionTimeoutMillis: CONNECT_LIMIT_MS,
      keepAlive: true,
    });
    this.client = client;
    client.on('notification', () => this.options.onEvent());
    client.on('error', (error) => this.lost(client, error));
    client.on('end', () => this.lost(client, null));
    try {
      await client.connect();
      await client.query(`LISTEN ${OUTBOX_CHANNEL}`);
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
    this.timer = setTimeout(() => void this.start(), RECONNECT_AFTER_MS);
    this.timer.unref();
  }
}
