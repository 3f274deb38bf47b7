import { type ChildProcess, spawn } from 'node:child_process';
import { createServer, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  isInstalled,
  LOCALSTRIPE,
  LOCALSTRIPE_PYTHON,
  mustHavePeers,
  type Peer,
  STRIPE_MOCK,
} from '../../scripts/peers/peers.js';

/** A peer under way, with a recorder in front of it. */
export interface RunningPeer {
  /** Where the adapter is to send its requests: the recorder. */
  readonly url: string;
  /** The peer itself. */
  readonly peer_url: string;
  /** Every request that went through, oldest first. */
  readonly requests: readonly { method: string; path: string; status: number; said: string }[];
  close(): Promise<void>;
}

/** Whether a peer can be tested with; says so in one line where not, and fails in CI. */
export function hasPeer(peer: Peer): boolean {
  if (isInstalled(peer)) return true;
  if (mustHavePeers()) throw new Error(`${peer.name} is not installed: npx tsx scripts/peers/fetch.ts`);
  console.log(`${peer.name} is not installed: its tests are left out`);
  return false;
}

/** Stripe's own mock: checks each request against the OpenAPI description. */
export function startStripeMock(): Promise<RunningPeer> {
  const child = spawn(STRIPE_MOCK.program, ['-http-addr', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'pipe'] });
  return record(STRIPE_MOCK.name, child, /address: (?<host>127\.0\.0\.1:\d+)/, (text) => text);
}

/** Its own start listens on every interface; this listens on this machine only, on a port that is free. */
const LOCALSTRIPE_START = `
from aiohttp import web
from localstripe.server import app
web.run_app(app, host='127.0.0.1', port=0)
`;

/** What our requests carry and localstripe answers 400 to, having never heard of it. */
const UNKNOWN_TO_LOCALSTRIPE =
  /^(?:automatic_payment_methods\[|error_on_requires_action$|return_url$|cancellation_reason$|reason$)/;

/** A stateful stand-in. The parameters that it does not know are taken out on the way. */
export function startLocalstripe(): Promise<RunningPeer> {
  const child = spawn(LOCALSTRIPE_PYTHON, ['-u', '-c', LOCALSTRIPE_START], { stdio: ['ignore', 'pipe', 'pipe'] });
  return record(LOCALSTRIPE.name, child, /Running on http:\/\/(?<host>127\.0\.0\.1:\d+)/, (text) => {
    const fields = [...new URLSearchParams(text)].filter(([name]) => !UNKNOWN_TO_LOCALSTRIPE.test(name));
    return new URLSearchParams(fields).toString();
  });
}

async function record(
  name: string,
  child: ChildProcess,
  listening: RegExp,
  translate: (body: string) => string,
): Promise<RunningPeer> {
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const peer_url = `http://${await hostOf(name, child, listening)}`;
  const requests: RunningPeer['requests'][number][] = [];
  const server = createServer((request, response) => {
    void forward(request, peer_url, translate).then(({ status, said }) => {
      requests.push({ method: request.method ?? '', path: request.url ?? '', status, said });
      response.writeHead(status, { 'content-type': 'application/json' }).end(said);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    peer_url,
    requests,
    close: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      child.kill('SIGTERM');
      await ended;
    },
  };
}

/** Waits until the child says where it listens. */
function hostOf(name: string, child: ChildProcess, listening: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    let said = '';
    const hear = (chunk: Buffer): void => {
      said += chunk.toString();
      const host = listening.exec(said)?.groups?.host;
      if (host) resolve(host);
    };
    child.stdout?.on('data', hear);
    child.stderr?.on('data', hear);
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`${name} ended with ${code ?? 'a signal'}: ${said}`)));
  });
}

const FORWARDED = ['authorization', 'content-type', 'idempotency-key', 'stripe-version'] as const;

async function forward(
  request: IncomingMessage,
  peer_url: string,
  translate: (body: string) => string,
): Promise<{ status: number; said: string }> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks).toString('utf8');
  const answer = await fetch(`${peer_url}${request.url ?? ''}`, {
    method: request.method ?? 'GET',
    headers: forwardedHeaders(request.headers),
    ...(body === '' ? {} : { body: translate(body) }),
  });
  return { status: answer.status, said: await answer.text() };
}

function forwardedHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  return Object.fromEntries(
    FORWARDED.flatMap((name) => {
      const value = headers[name];
      return typeof value === 'string' ? [[name, value]] : [];
    }),
  );
}
