import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import Stripe from 'stripe';
import { type Answer, type Fields, missing, problem, type Stored, StripeObjects } from './stripe-objects.js';

/**
 * A stand-in for api.stripe.com, built from its documentation: what is sent over HTTP, the idempotency layer
 * (https://docs.stripe.com/api/idempotent_requests) and the faults of a network and of a server. The objects and their
 * states are in stripe-objects.ts.
 */
export interface StripeRequest {
  readonly method: string;
  readonly path: string;
  readonly fields: Fields;
  readonly idempotency_key: string | undefined;
  /** The status that was answered; null: none. */
  readonly answered: number | null;
}

/** What something between us and Stripe answers, in its own way. */
export interface ProxyAnswer {
  readonly status: number;
  readonly text: string;
}

/**
 * What the next matching request meets. `commits`: whether it takes effect before that. `hang` answers nothing,
 * `reset` cuts the connection, `stall` sends half of an answer, a status is an API error that the key remembers.
 */
export interface Fault {
  readonly commits: boolean;
  readonly then: 'hang' | 'reset' | 'stall' | 'redirect' | ProxyAnswer | Answer;
}

export interface StripeStandin {
  readonly url: string;
  readonly secret_key: string;
  readonly webhook_secret: string;
  readonly objects: StripeObjects;
  /** Every request, oldest first. */
  readonly requests: readonly StripeRequest[];
  /** The next request whose "METHOD /path" starts with this meets the fault. */
  next(route: string, fault: Fault): void;
  /** Search sees what exists now; until called again, nothing newer. */
  catchUpSearch(): void;
  /** Stripe "removes keys after they're at least 24 hours old". */
  forgetKeys(): void;
  /** An event as Stripe would send it, in bytes, with its signature header. */
  event(
    type: string,
    object: Stored,
    overrides?: Record<string, unknown>,
  ): { body: Buffer; headers: { 'stripe-signature': string } };
  close(): Promise<void>;
}

interface Remembered {
  readonly params: string;
  readonly answer: Answer | null;
}

export async function startStripeStandin(options: { livemode?: boolean } = {}): Promise<StripeStandin> {
  const livemode = options.livemode ?? false;
  const secret_key = livemode ? 'sk_live_standin' : 'sk_test_standin';
  const webhook_secret = 'whsec_standin';
  const objects = new StripeObjects(livemode);
  const requests: StripeRequest[] = [];
  const faults: { route: string; fault: Fault }[] = [];
  const keys = new Map<string, Remembered>();
  let searchable: readonly Stored[] = [];
  let events = 0;

  const server = createServer((request, response) => {
    void readBody(request).then((text) => handle(request, response, text));
  });

  function handle(request: IncomingMessage, response: ServerResponse, text: string): void {
    const url = new URL(request.url ?? '/', 'http://standin');
    const method = request.method ?? '';
    const fields = Object.fromEntries(method === 'POST' ? new URLSearchParams(text) : url.searchParams);
    const idempotency_key = request.headers['idempotency-key']?.toString();
    const seen = { method, path: url.pathname, fields, idempotency_key };
    const waiting = faults.findIndex(({ route }) => `${method} ${url.pathname}`.startsWith(route));
    const fault = waiting < 0 ? undefined : faults.splice(waiting, 1)[0]?.fault;
    if (request.headers.authorization !== `Bearer ${secret_key}`) {
      const answer = problem(401, {
        type: 'invalid_request_error',
        message: 'Invalid API Key provided: sk_test_****dead',
      });
      requests.push({ ...seen, answered: 401 });
      return send(response, answer);
    }
    const answer = throughKey(idempotency_key, JSON.stringify([url.pathname, fields]), fault, () =>
      route(method, url.pathname, fields),
    );
    const breaks = fault && !isAnswer(fault.then) ? fault.then : undefined;
    requests.push({ ...seen, answered: breaks === undefined ? answer.status : null });
    if (breaks === undefined) send(response, answer);
    else breakOff(response, breaks, answer);
  }

  /** Saves status and body of what began to execute, and gives them back to the same request. */
  function throughKey(key: string | undefined, params: string, fault: Fault | undefined, run: () => Answer): Answer {
    const known = key === undefined ? undefined : keys.get(key);
    if (known && known.params !== params) {
      return problem(400, {
        type: 'idempotency_error',
        message: 'Keys for idempotent requests can only be used with the same parameters they were first used with.',
      });
    }
    if (known?.answer) return known.answer;
    const made = fault?.commits === false ? null : run();
    const told = fault && isAnswer(fault.then) ? fault.then : made;
    // A refusal that the endpoint never began (a conflict, a rate limit) leaves the key unused.
    const saved = told && told.status !== 409 && told.status !== 429 && (made !== null || told.status >= 500);
    if (key !== undefined && saved) keys.set(key, { params, answer: copyOf(told) });
    return copyOf(told ?? problem(500, { type: 'api_error', message: 'nothing was done' }));
  }

  function route(method: string, path: string, fields: Fields): Answer {
    const [, kind = '', id = '', action = ''] = /^\/v1\/(\w+)(?:\/(\w+))?(?:\/(\w+))?$/.exec(path) ?? [];
    const expand = Object.entries(fields).flatMap(([name, value]) => (name.startsWith('expand[') ? [value] : []));
    switch (`${method} ${kind}${id === '' || id === 'search' ? `/${id}` : '/:id'}${action && `/${action}`}`) {
      case 'POST payment_intents/':
        return objects.createIntent(fields);
      case 'POST payment_intents/:id/capture':
        return objects.captureIntent(id, fields);
      case 'POST payment_intents/:id/cancel':
        return objects.cancelIntent(id, fields);
      case 'POST refunds/':
        return objects.createRefund(fields);
      case 'GET payment_intents/search':
        return search(fields.query ?? '');
      case 'GET refunds/':
        return listRefunds(fields);
      case 'GET payment_intents/:id':
      case 'GET refunds/:id': {
        const stored = objects.find(id);
        return stored ? { status: 200, body: objects.expanded(stored, expand) } : missing(kind, id);
      }
      default:
        return problem(404, {
          type: 'invalid_request_error',
          message: `Unrecognized request URL (${method}: ${path}).`,
        });
    }
  }

  /** https://docs.stripe.com/search#metadata */
  function search(query: string): Answer {
    const [, name = '', value] = /^metadata\['(\w+)'\]:'([^']*)'$/.exec(query) ?? [];
    if (value === undefined) {
      return problem(400, {
        type: 'invalid_request_error',
        param: 'query',
        message: 'We were unable to parse your search query.',
      });
    }
    const data = searchable.filter((stored) => stored.metadata[name] === value);
    return { status: 200, body: { object: 'search_result', url: '/v1/payment_intents/search', has_more: false, data } };
  }

  /** Most recent first. https://docs.stripe.com/api/pagination */
  function listRefunds(fields: Fields): Answer {
    const refunds = objects
      .all('refund')
      .filter((refund) => refund.payment_intent === fields.payment_intent)
      .reverse();
    const start = refunds.findIndex((refund) => refund.id === fields.starting_after) + 1;
    const limit = Number(fields.limit ?? 10);
    const data = refunds.slice(start, start + limit);
    return {
      status: 200,
      body: { object: 'list', url: '/v1/refunds', has_more: start + limit < refunds.length, data },
    };
  }

  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    secret_key,
    webhook_secret,
    objects,
    requests,
    next: (path, fault) => faults.push({ route: path, fault }),
    catchUpSearch: () => {
      searchable = objects.all('payment_intent').map(copyOf);
    },
    forgetKeys: () => keys.clear(),
    event: (type, object, overrides = {}) => {
      events += 1;
      const event = {
        id: `evt_${events}${createHash('sha256').update(type).digest('hex').slice(0, 12)}`,
        object: 'event',
        api_version: '2026-10-28.endive',
        created: Math.floor(Date.now() / 1000),
        data: { object },
        livemode,
        pending_webhooks: 1,
        request: { id: null, idempotency_key: null },
        type,
        ...overrides,
      };
      const payload = JSON.stringify(event, null, 2);
      const header = Stripe.webhooks.generateTestHeaderString({ payload, secret: webhook_secret });
      return { body: Buffer.from(payload), headers: { 'stripe-signature': header } };
    },
    close: () =>
      new Promise((closed) => {
        server.closeAllConnections();
        server.close(() => closed());
      }),
  };
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

function send(response: ServerResponse, answer: Answer): void {
  response.writeHead(answer.status, { 'content-type': 'application/json', 'request-id': 'req_standin' });
  response.end(JSON.stringify(answer.body));
}

function isAnswer(then: Fault['then']): then is Answer {
  return typeof then === 'object' && 'body' in then;
}

function breakOff(response: ServerResponse, how: Exclude<Fault['then'], Answer>, answer: Answer): void {
  if (how === 'reset') response.socket?.resetAndDestroy();
  if (how === 'redirect') response.writeHead(307, { location: '/elsewhere' }).end();
  if (typeof how === 'object') response.writeHead(how.status, { 'content-type': 'text/html' }).end(how.text);
  if (how === 'stall') {
    const text = JSON.stringify(answer.body);
    response.writeHead(answer.status, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(text),
    });
    response.write(text.slice(0, 20));
  }
}

/** What was answered must not change with the object later. */
function copyOf<T>(value: T): T {
  return structuredClone(value);
}
