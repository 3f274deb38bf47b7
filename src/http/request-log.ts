import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import type { Metrics } from '../metrics.js';
import { API_HEADERS } from './security-headers.js';

/** An id that a caller gave the request is worth logging, and nothing more: it is never trusted as ours. */
const CALLER_REQUEST_ID = /^[\w.:-]{1,128}$/;

/** `Request-Id` and the protective headers on every answer; one log line and one observation after it. */
export const requestLog = fastifyPlugin(async function requestLog(app: FastifyInstance, options: { metrics: Metrics }) {
  app.decorateRequest('payment_id', null);
  app.decorateRequest('problem_code', null);
  app.addHook('onRequest', (request, reply, done) => {
    if (request.routeOptions.config.page !== true) reply.headers(API_HEADERS);
    reply.header('request-id', request.id);
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    const { config } = request.routeOptions;
    const route = request.is404 ? '(none)' : config.url;
    options.metrics.observeRequest(route, request.method, reply.statusCode, reply.elapsedTime);
    if (config.quiet === true) request.log.debug(summary(request, reply, route), 'request');
    else request.log.info(summary(request, reply, route), 'request');
    done();
  });
});

function summary(request: FastifyRequest, reply: FastifyReply, route: string): Record<string, unknown> {
  const caller_request_id = request.headers['x-request-id'];
  return {
    method: request.method,
    route,
    status: reply.statusCode,
    duration_ms: Math.round(reply.elapsedTime * 1000) / 1000,
    client_id: request.client?.id,
    payment_id: request.payment_id ?? undefined,
    code: request.problem_code ?? undefined,
    caller_request_id:
      typeof caller_request_id === 'string' && CALLER_REQUEST_ID.test(caller_request_id)
        ? caller_request_id
        : undefined,
  };
}
