import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/** Between the service, or its pooler, and the database: at one address for ever, whatever happens behind it. */
export class DatabaseProxy {
  private cut: { readonly part: Buffer; readonly done: () => void } | null = null;
  private readonly sockets = new Set<Socket>();

  private constructor(
    private readonly server: Server,
    private target: URL,
  ) {}

  static async start(database_url: string): Promise<DatabaseProxy> {
    const server = createServer();
    const proxy = new DatabaseProxy(server, new URL(database_url));
    server.on('connection', (client) => proxy.join(client));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return proxy;
  }

  get url(): string {
    const url = new URL(this.target);
    const address = this.server.address();
    url.hostname = '127.0.0.1';
    url.port = String(typeof address === 'object' && address !== null ? address.port : 0);
    return url.href;
  }

  /** The server came up again, perhaps at another port. */
  pointTo(database_url: string): void {
    this.target = new URL(database_url);
  }

  /**
   * The next time that a statement is run that is known by `part`, some of what goes over the wire with it: the server gets
   * it and commits, and its answer is lost with the connection. Resolves when that has happened.
   */
  loseAnswerOf(part: string): Promise<void> {
    return new Promise((done) => {
      this.cut = { part: Buffer.from(part), done };
    });
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
    await once(this.server, 'close');
  }

  private join(client: Socket): void {
    const server = connect(Number(this.target.port), this.target.hostname);
    let isLosing = false;
    let before = Buffer.alloc(0);
    const end = (): void => {
      client.destroy();
      server.destroy();
    };
    client.on('data', (data) => {
      // A pooler forwards in pieces, which may end anywhere.
      const seen = Buffer.concat([before, data]);
      if (this.cut && seen.includes(this.cut.part)) isLosing = true;
      before = this.cut ? seen.subarray(-this.cut.part.length + 1) : Buffer.alloc(0);
      server.write(data);
    });
    server.on('data', (data) => {
      if (!isLosing) {
        client.write(data);
        return;
      }
      isLosing = false;
      const { done } = this.cut ?? { done: () => undefined };
      this.cut = null;
      end();
      done();
    });
    for (const socket of [client, server]) {
      this.sockets.add(socket);
      socket.on('error', end);
      socket.on('close', () => {
        this.sockets.delete(socket);
        end();
      });
    }
  }
}
