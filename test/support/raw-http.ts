import { connect, type Socket } from 'node:net';

export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A connection on which a test writes bytes itself: for what no HTTP client would send. */
export class RawConnection {
  private received = '';
  private ended = false;
  private wake: () => void = () => undefined;

  private constructor(private readonly socket: Socket) {
    const woken = (): void => this.wake();
    socket.on('data', (chunk: Buffer) => {
      this.received += chunk.toString('latin1');
      woken();
    });
    for (const event of ['end', 'close', 'error'] as const) {
      socket.on(event, () => {
        this.ended = true;
        woken();
      });
    }
  }

  static async open(url: string): Promise<RawConnection> {
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject));
    return new RawConnection(socket);
  }

  write(text: string): void {
    this.socket.write(text, 'latin1');
  }

  /** The next answer on the connection. */
  async answer(): Promise<RawAnswer> {
    for (;;) {
      const answer = this.take();
      if (answer !== null) return answer;
      if (this.ended) throw new Error(`the connection ended after: ${JSON.stringify(this.received)}`);
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  /** Resolves when the other side has ended the connection. */
  async end(): Promise<void> {
    while (!this.ended) await new Promise<void>((resolve) => (this.wake = resolve));
  }

  destroy(): void {
    this.socket.destroy();
  }

  private take(): RawAnswer | null {
    const head_end = this.received.indexOf('\r\n\r\n');
    if (head_end < 0) return null;
    const [status_line = '', ...lines] = this.received.slice(0, head_end).split('\r\n');
    const headers = Object.fromEntries(
      lines.map((line) => {
        const colon = line.indexOf(':');
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
      }),
    );
    const body_end = head_end + 4 + Number(headers['content-length'] ?? 0);
    if (this.received.length < body_end) return null;
    const body = this.received.slice(head_end + 4, body_end);
    this.received = this.received.slice(body_end);
    return { status: Number(status_line.split(' ')[1]), headers, body };
  }
}

/** Sends bytes on a connection of their own. @returns the answer */
export async function sendRaw(url: string, text: string): Promise<RawAnswer> {
  const connection = await RawConnection.open(url);
  try {
    connection.write(text);
    return await connection.answer();
  } finally {
    connection.destroy();
  }
}
