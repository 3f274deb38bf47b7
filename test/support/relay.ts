import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/**
 * A way to a server that a test can break: closed (connections are refused), or cut right after the server has done what
 * a client asked for, so that nobody hears of it.
 */
export class Relay {
  private readonly sockets = new Set<Socket>();
  private server: Server | null = null;
  private doomed: { pattern: string; cut: () => void } | null = null;

  private constructor(
    private target_port: number,
    private port: number,
  ) {}

  static async open(target_port: number): Promise<Relay> {
    const relay = new Relay(target_port, 0);
    await relay.reopen();
    return relay;
  }

  /** The same address, by way of this relay. */
  urlFor(url: string): string {
    return url.replace(/@[^/]*/, `@127.0.0.1:${this.port}`);
  }

  /** Takes connections (again), at the same address; `target_port`: the server's, where it has moved. */
  async reopen(target_port = this.target_port): Promise<void> {
    this.target_port = target_port;
    this.server = createServer((client) => this.relay(client));
    this.server.listen(this.port, '127.0.0.1');
    await once(this.server, 'listening');
    this.port = (this.server.address() as AddressInfo).port;
  }

  /** Refuses connections and cuts those that there are. */
  async close(): Promise<void> {
    const { server } = this;
    this.server = null;
    if (server === null) return;
    const closed = once(server, 'close');
    server.close();
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }

  /** The next message that holds `pattern` reaches the server and is done there; its answer does not come back. */
  loseAnswerTo(pattern: string): Promise<void> {
    return new Promise((resolve) => (this.doomed = { pattern, cut: resolve }));
  }

  private relay(client: Socket): void {
    const server = connect(this.target_port, '127.0.0.1');
    let isDoomed: (() => void) | null = null;
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      this.sockets.add(from);
      from.on('error', () => undefined);
      from.on('close', () => {
        this.sockets.delete(from);
        to.destroy();
      });
    }
    client.on('data', (data: Buffer) => {
      if (this.doomed !== null && data.includes(this.doomed.pattern)) {
        isDoomed = this.doomed.cut;
        this.doomed = null;
      }
      server.write(data);
    });
    server.on('data', (data: Buffer) => {
      if (isDoomed === null) {
        client.write(data);
        return;
      }
      client.destroy();
      isDoomed();
    });
  }
}
