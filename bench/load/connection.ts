import { connect, type Socket } from 'node:net';

export interface Answer {
  readonly status: number;
  readonly replayed: boolean;
}

type Waiting = (answer: Answer | Error) => void;

const HEAD_END = Buffer.from('\r\n\r\n');

/**
 * One keep-alive HTTP/1.1 connection with one request under way. It parses no more of an answer than the measuring
 * needs (status, length, whether it is a replay), so that the generator stays far from being the bottleneck.
 */
export class Connection {
  #socket: Socket | null = null;
  #waiting: Waiting | null = null;
  #received: Buffer | null = null;

  constructor(
    private readonly host: string,
    private readonly port: number,
  ) {}

  /** Sends the bytes of a whole request; the answer, or what broke the connection, goes to `waiting`. */
  send(request: string, waiting: Waiting): void {
    this.#waiting = waiting;
    this.#socket ??= this.#open();
    this.#socket.write(request, 'latin1');
  }

  close(): void {
    this.#waiting = null;
    this.#socket?.destroy();
    this.#socket = null;
  }

  #open(): Socket {
    const socket = connect({ host: this.host, port: this.port, noDelay: true });
    let reason = new Error('connection closed');
    socket.on('data', (chunk) => {
      this.#read(chunk);
    });
    socket.on('error', (error) => {
      reason = error;
    });
    socket.on('close', () => {
      if (this.#socket !== socket) return;
      this.#socket = null;
      this.#finish(reason);
    });
    return socket;
  }

  #read(chunk: Buffer): void {
    const bytes = this.#received === null ? chunk : Buffer.concat([this.#received, chunk]);
    const head_length = bytes.indexOf(HEAD_END);
    if (head_length < 0) {
      this.#received = bytes;
      return;
    }
    const head = bytes.toString('latin1', 0, head_length).toLowerCase();
    const at = head.indexOf('\r\ncontent-length: ');
    const body_length = at < 0 ? 0 : Number.parseInt(head.slice(at + 18, at + 30), 10);
    if (bytes.length < head_length + HEAD_END.length + body_length) {
      this.#received = bytes;
      return;
    }
    this.#received = null;
    this.#finish({
      status: Number.parseInt(head.slice(9, 12), 10),
      replayed: head.includes('\r\nidempotent-replayed: true'),
    });
  }

  #finish(answer: Answer | Error): void {
    const waiting = this.#waiting;
    this.#waiting = null;
    this.#received = null;
    waiting?.(answer);
  }
}
