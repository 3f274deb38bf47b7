import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { OncepayError } from '../domain/errors.js';

/**
 * Requests that no route takes: 404, or 405 with `Allow` where the path exists; OPTIONS tells the same without a
 * refusal. Decided before authentication and before any body is read: the routes are no secret.
 */
export const unrouted = fastifyPlugin(async function unrouted(app: FastifyInstance) {
  app.addHook('onRequest', (request, reply, done) => {
    if (!request.is404) {
      done();
      return;
    }
    const allowed = allowedMethods(app, request.raw.url ?? '/');
    if (allowed.length === 0) {
      done(new OncepayError('not_found', 'There is nothing at this address.'));
      return;
    }
    reply.header('allow', allowed.join(', '));
    if (request.method === 'OPTIONS') return void reply.code(204).send();
    done(new OncepayError('method_not_allowed', `${request.method} is not possible here.`));
  });
  app.setNotFoundHandler(notFound);
});

/** For handlers that call `reply.callNotFound()`; what has no route is answered above. */
function notFound(_request: FastifyRequest, _reply: FastifyReply): never {
  throw new OncepayError('not_found', 'There is nothing at this address.');
}

function allowedMethods(app: FastifyInstance, url: string): string[] {
  return app.supportedMethods.filter((method) => routeFor(app, method, url) !== null).sort();
}

/** The route that would take this request, by the router itself; its type leaves out that there may be none. */
function routeFor(app: FastifyInstance, method: string, url: string): unknown {
  return app.findRoute({ method, url });
}
