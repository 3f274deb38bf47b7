import type { FastifyInstance } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { OncepayError } from '../domain/errors.js';

declare module 'fastify' {
  interface FastifyInstance {
    /** True from the moment on that the app is told to close. */
    isDraining(): boolean;
  }
}

/**
 * Closing: requests under way run to their end, new ones on connections that are still open are told 503, and every
 * answer ends its connection, so that a lone keep-alive connection does not hold the end.
 */
export const draining = fastifyPlugin(async function draining(app: FastifyInstance) {
  let closing = false;
  app.decorate('isDraining', () => closing);
  app.addHook('preClose', (done) => {
    closing = true;
    done();
  });
  app.addHook('onRequest', (request, _reply, done) => {
    if (!closing || request.routeOptions.config.quiet === true) {
      done();
      return;
    }
    done(new OncepayError('unavailable', 'The service is shutting down.', { retry_after_s: 1 }));
  });
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (closing) reply.header('connection', 'close');
    done(null, payload);
  });
});
