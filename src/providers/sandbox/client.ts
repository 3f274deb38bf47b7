import * as http from 'node:http';
import * as https from 'node:https';
import { ProviderError } from '../provider.js';

export interface Reply {
  readonly status: number;
  readonly body: unknown;
}

export interface Call {
  readonly method: 'GET' | 'POST';
  /** With its query; under the provider's address. */
  readonly path: string;
  readonly timeout_ms: number;
  readonly idempotency_key?: string;
  readonly body?: Readonly<Record<string, unknown>>;
}

const MOST_CONNECTIONS = 256;
const REPLY_LIMIT_BYTES = 1024 * 1024;

/** HTTP to the sandbox over connections that are kept open. Retries nothing. */
export class SandboxClient {
  readonly #base: URL;
  readonly #agent: http.Agent;
  readonly #request: typeof http.request;

  /** @throws Error where the address is none */
  constructor(base_url: string) {
    this.#base = new URL(base_url.endsWith('/') ? base_url : `${base_url}/`);
    const transport = this.#base.protocol === 'https:' ? https : http;
    this.#agent = new transport.Agent({ keepAlive: true, maxSockets: MOST_CONNECTIONS });
    this.#request = transport.request;
  }

  /**
   * One attempt, cut off when its time is over: connecting, waiting and reading together.
   * @throws ProviderError `not_sent` where no connection came to be, `unknown` where no whole answer came
   */
  async call(call: Call): Promise<Reply> {
    const bytes = call.body ? Buffer.from(JSON.stringify(call.body)) : null;
    const headers: http.OutgoingHttpHeaders = {
      ...(bytes && { 'content-type': 'application/json', 'content-length': bytes.length }),
      ...(call.idempotency_key !== undefined && { 'idempotency-key': call.idempotency_key }),
    };
    const url = new URL(call.path.slice(1), this.#base);
    return new Promise<Reply>((resolve, reject) => {
      let isConnected = false;
      const fail = (error: Error) => {
        clearTimeout(limit);
        reject(error instanceof ProviderError ? error : transportError(error, isConnected));
      };
      const req = this.#request(url, { method: call.method, headers, agent: this.#agent }, (res) => {
        readReply(res).then((reply) => {
          clearTimeout(limit);
          resolve(reply);
        }, fail);
      });
      const limit = setTimeout(() => {
        req.destroy(new ProviderError('unknown', 'timeout', `the sandbox did not answer within ${call.timeout_ms} ms`));
      }, call.timeout_ms);
      req.on('socket', (socket) => {
        // Nothing is written before: without a connection, nothing of the request has left.
        if (socket.connecting) socket.once('connect', () => (isConnected = true));
        else isConnected = true;
      });
      req.on('error', fail);
      req.end(bytes ?? undefined);
    });
  }
}

async function readReply(res: http.IncomingMessage): Promise<Reply> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of res as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > REPLY_LIMIT_BYTES) throw unreadable('is too long');
    chunks.push(chunk);
  }
  const status = res.statusCode ?? 0;
  const text = Buffer.concat(chunks).toString('utf8');
  try {
    return { status, body: JSON.parse(text) as unknown };
  } catch {
    // What stands before a provider (a proxy, say) answers errors in its own way: the status tells enough.
    if (status >= 300) return { status, body: null };
    throw unreadable('is no JSON');
  }
}

/** An answer came, but says nothing that can be relied on. */
export function unreadable(why: string): ProviderError {
  return new ProviderError('unknown', 'unreadable_answer', `the sandbox's answer ${why}`);
}

const REASONS: ReadonlyMap<string, string> = new Map([
  ['ECONNREFUSED', 'connection_refused'],
  ['ECONNRESET', 'connection_reset'],
  ['EPIPE', 'connection_reset'],
  ['ENOTFOUND', 'unknown_host'],
  ['EAI_AGAIN', 'unknown_host'],
]);

function transportError(error: NodeJS.ErrnoException, isConnected: boolean): ProviderError {
  const code = error.code ?? 'connection_failed';
  const reason = REASONS.get(code) ?? code.toLowerCase();
  return isConnected
    ? new ProviderError('unknown', reason, `no answer from the sandbox (${code})`, { cause: error })
    : new ProviderError('not_sent', reason, `no connection to the sandbox (${code})`, { cause: error });
}
