import type { FastifyRequest, RouteOptions } from 'fastify';
import type { AuthenticatedClient } from '../clients/directory.js';
import type { Scope } from '../clients/scopes.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by authentication; null on routes that are public. */
    client: AuthenticatedClient | null;
    /** For the request's log line: the payment it was about. Set by whoever finds it out. */
    payment_id: string | null;
    /** For the request's log line: the code of the problem it was answered with. */
    problem_code: string | null;
  }
  interface FastifyContextConfig {
    /** What the client must be allowed to do. A route has this or `public`, else the service does not start. */
    scope?: Scope;
    /** No API key is asked for. */
    public?: true;
    /** The route reads its body itself, whatever its content type (webhooks). */
    raw_body?: true;
    /** For a browser: the headers of pages.ts instead of those for data. */
    page?: true;
    /** Asked often by machines: its requests are logged at `debug`. */
    quiet?: true;
  }
}

/** The client of a request on a route with a scope. */
export function clientOf(request: FastifyRequest): AuthenticatedClient {
  if (request.client === null) throw new Error(`${request.method} ${request.url} is not behind authentication`);
  return request.client;
}

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i;

/** An id from a path, in the form that the database gives out; null where it is no UUID v7, which is a 404. */
export function parseId(text: string): string | null {
  return UUID_V7.test(text) ? text.toLowerCase() : null;
}

/** @throws Error naming the routes that say neither who may call them nor that everybody may. */
export function checkAccessDeclared(routes: readonly RouteOptions[]): void {
  const open = routes.filter(({ config }) => (config?.scope === undefined) === (config?.public === undefined));
  if (open.length === 0) return;
  const names = open.map((route) => `${String(route.method)} ${route.url}`).join(', ');
  throw new Error(`Each route needs either config.scope or config.public: ${names}`);
}
