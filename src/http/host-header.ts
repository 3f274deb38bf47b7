import type { FastifyInstance } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { OncepayError } from '../domain/errors.js';

/**
 * HTTP/1.1 wants a Host header (RFC 9112, 3.2). Node would refuse by itself, but with an answer that has no body and
 * no request id; so it is told not to look (`requireHostHeader`), and this does.
 */
export const hostHeader = fastifyPlugin(async function hostHeader(app: FastifyInstance) {
  app.addHook('onRequest', (request, _reply, done) => {
    const { headers, httpVersion } = request.raw;
    if (headers.host !== undefined || httpVersion === '1.0') done();
    else
      done(
        new OncepayError('validation_failed', 'The request has no Host header.', {
          errors: [{ path: 'header/host', message: 'is required' }],
        }),
      );
  });
});
