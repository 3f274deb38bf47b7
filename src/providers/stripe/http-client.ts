import * as http from 'node:http';
import * as https from 'node:https';
import type Stripe from 'stripe';

/** Stripe's objects are some kilobytes; a page of 100 refunds is 100 of them. */
const ANSWER_LIMIT_BYTES = 4 * 1024 * 1024;
const MOST_CONNECTIONS = 256;

/** A request that got no whole answer. */
export class TransportError extends Error {
  override readonly name = 'TransportError';
  constructor(
    /**
     * Node's word for it, or `timeout`. Not called `code`: by that, the SDK would recognize a closed connection and
     * send the request once more, even with its retries off (RequestSender._shouldRetry). The attempt behind our back
     * would make "connection refused" after a reset look as if nothing had been sent.
     */
    readonly transport_code: string,
    /** Whether a connection (with its TLS) stood. Without one, nothing of the request has left. */
    readonly connected: boolean,
  ) {
    super(`no answer from Stripe (${transport_code})`);
  }
}

/**
 * HTTP for the SDK: one attempt, and a limit that covers connecting, waiting and reading together and cuts them off
 * (the SDK's own client only limits how long the socket is silent). Redirects are answers like any other, never followed.
 */
export function createHttpClient(): Stripe.HttpClient {
  const agents = { http: new http.Agent(AGENT), https: new https.Agent(AGENT) };
  return {
    getClientName: () => 'node',
    makeRequest: async (...request) => {
      const [host, port, path, method, headers, body, protocol, timeout_ms] = request;
      const secure = protocol !== 'http';
      const agent = secure ? agents.https : agents.http;
      const outgoing = headers as http.OutgoingHttpHeaders;
      const send = secure ? https.request : http.request;
      return answerOf(await exchange(send, { host, port, path, method, headers: outgoing, agent }, body, timeout_ms));
    },
  };
}

const AGENT = { keepAlive: true, maxSockets: MOST_CONNECTIONS };

interface Exchanged {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly text: string;
}

function exchange(
  send: typeof http.request,
  options: http.RequestOptions,
  body: string,
  timeout_ms: number,
): Promise<Exchanged> {
  return new Promise((resolve, reject) => {
    let connected = false;
    const fail = (error: NodeJS.ErrnoException): void => {
      clearTimeout(limit);
      const code = error.code ?? 'connection_failed';
      reject(error instanceof TransportError ? error : new TransportError(code, connected));
    };
    const request = send(options, (response) => {
      readText(response).then((text) => {
        clearTimeout(limit);
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text });
      }, fail);
    });
    const limit = setTimeout(() => request.destroy(new TransportError('timeout', connected)), timeout_ms);
    request.on('socket', (socket) => {
      if (!socket.connecting) connected = true;
      else socket.once('encrypted' in socket ? 'secureConnect' : 'connect', () => (connected = true));
    });
    request.on('error', fail);
    request.end(body === '' ? undefined : body);
  });
}

async function readText(response: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > ANSWER_LIMIT_BYTES) throw new TransportError('answer_too_long', true);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

type SdkResponse = Awaited<ReturnType<Stripe.HttpClient['makeRequest']>>;

function answerOf({ status, headers, text }: Exchanged): SdkResponse {
  return {
    getStatusCode: () => status,
    getHeaders: () => headers as ReturnType<SdkResponse['getHeaders']>,
    getRawResponse: () => ({ statusCode: status, headers }),
    toStream: () => {
      throw new Error('nothing that we ask for is streamed');
    },
    toJSON: async () => {
      try {
        return JSON.parse(text) as unknown;
      } catch (error) {
        // What stands before Stripe (a proxy, say) answers in its own way; where the status tells enough, it is told.
        if (status === 401 || status === 403 || status === 429 || status >= 500)
          return { error: { type: 'api_error' } };
        throw error;
      }
    },
  };
}
