import * as http from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { actionPage } from './action-page.js';
import { apiRoute, type SimulatorRequest } from './api-routes.js';
import { errorBody, Refusal } from './errors.js';
import { readBody } from './http.js';
import { type Answer, Provider, type Silence } from './provider.js';
import { SANDBOX_ROUTES } from './sandbox-routes.js';
import { Store } from './store.js';
import { Timers } from './timers.js';
import { WebhookSender } from './webhooks.js';

export interface SimulatorOptions {
  /** 0: a free one. */
  readonly port: number;
  readonly host?: string;
  /** Where the money is kept: read at start, appended to, safe over kill -9. One simulator at a time. */
  readonly ledger_file: string;
  /** Null: no webhooks. */
  readonly webhook_url?: string | null;
  /** `whsec_…`; needed where there is an address. */
  readonly webhook_secret?: string | null;
  readonly log?: (line: string) => void;
}

export interface Simulator {
  /** `http://host:port` */
  readonly url: string;
  /** Requests that are under way get no answer; what was scheduled goes on at the next start. */
  close(): Promise<void>;
}

const BODY_LIMIT_BYTES = 64 * 1024;
const EMIT_LIMIT_BYTES = 2 * 1024 * 1024;
const KEEP_ALIVE_MS = 60_000;

/** Where the ledger lies within a data folder. */
export function ledgerFile(data_dir: string): string {
  return join(data_dir, 'sandbox', 'ledger.jsonl');
}

/**
 * Starts the simulated provider (docs/simulator.md).
 * @throws Error where the port is taken, the ledger is damaged, or the webhook's address or secret can't be used.
 */
export async function startSimulator(options: SimulatorOptions): Promise<Simulator> {
  const { host = '127.0.0.1', log = () => undefined, webhook_url = null, webhook_secret = null } = options;
  if (webhook_url !== null && webhook_secret === null) throw new Error('webhooks need a secret to be signed with');
  const store = await Store.open(options.ledger_file);
  const timers = new Timers();
  const target = webhook_url !== null && webhook_secret !== null ? { url: webhook_url, secret: webhook_secret } : null;
  const sender = target && new WebhookSender(target, store, timers, log);
  const server = http.createServer({ keepAliveTimeout: KEEP_ALIVE_MS });
  try {
    await listen(server, options.port, host);
  } catch (error) {
    await store.close();
    throw error;
  }
  const provider = new Provider(store, timers, sender, log);
  server.on('request', (req, res) => void handle({ provider, sender, log }, req, res));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    async close() {
      timers.close();
      sender?.close();
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
      await store.close();
    },
  };
}

interface Context {
  readonly provider: Provider;
  readonly sender: WebhookSender | null;
  readonly log: (line: string) => void;
}

async function handle(context: Context, req: http.IncomingMessage, res: http.ServerResponse): Promise<void> {
  try {
    const request = await read(req, res);
    const page = actionPage(context.provider, request);
    const answer = page ? null : await route(context, request);
    // Nothing is told that is not safe on disk.
    await context.provider.store.synced();
    if (page) {
      const headers = { 'content-type': 'text/html; charset=utf-8', ...(page.location && { location: page.location }) };
      res.writeHead(page.status, headers).end(page.html);
    } else if (answer) answerOrNot(req, res, answer);
  } catch (error) {
    if (error instanceof Refusal) {
      send(res, { status: error.status, body: error.body });
      return;
    }
    context.log(`a request failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    send(res, { status: 500, body: errorBody('internal', 'the simulator failed; nothing can be said of the outcome') });
  }
}

async function read(req: http.IncomingMessage, res: http.ServerResponse): Promise<SimulatorRequest> {
  const base_url = `http://${req.headers.host ?? 'localhost'}`;
  const url = URL.canParse(req.url ?? '', base_url) ? new URL(req.url ?? '', base_url) : null;
  if (!url) throw new Refusal(400, 'invalid_request', 'the path can’t be read');
  const key = req.headers['idempotency-key'];
  const limit_bytes = url.pathname === '/_sandbox/emit' ? EMIT_LIMIT_BYTES : BODY_LIMIT_BYTES;
  return {
    method: req.method ?? '',
    path: url.pathname,
    query: url.searchParams,
    idempotency_key: typeof key === 'string' ? key : null,
    body: await readBody(req, limit_bytes),
    base_url,
    isOpen: () => !res.destroyed && !req.socket.destroyed,
  };
}

async function route(context: Context, request: SimulatorRequest): Promise<Answer | Silence> {
  const own = SANDBOX_ROUTES[`${request.method} ${request.path}`];
  const answer = own ? await own({ ...context, request }) : await apiRoute(context.provider, request);
  if (!answer) throw new Refusal(404, 'route_not_found', `there is no ${request.method} ${request.path}`);
  return answer;
}

function answerOrNot(req: http.IncomingMessage, res: http.ServerResponse, answer: Answer | Silence): void {
  // One that hangs stays open until the caller gives up or the simulator ends.
  if (answer === 'hang') return;
  if (answer === 'reset') req.socket.resetAndDestroy();
  else send(res, answer);
}

function send(res: http.ServerResponse, answer: Answer): void {
  if (res.headersSent || res.destroyed) return;
  const text = JSON.stringify(answer.body);
  res.writeHead(answer.status, {
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(text),
    ...(answer.isReplay && { 'idempotent-replayed': 'true' }),
    // What is left of a body that was too large is not read.
    ...(answer.status === 413 && { connection: 'close' }),
  });
  res.end(text);
}

async function listen(server: http.Server, port: number, host: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host }, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
