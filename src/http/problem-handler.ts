import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { newId } from '../domain/id.js';
import { PROBLEMS, problemBody } from '../contract/problems.js';
import { isUnavailable } from '../database/errors.js';
import { OncepayError } from '../domain/errors.js';
import { API_HEADERS } from './security-headers.js';

export const PROBLEM_CONTENT_TYPE = 'application/problem+json; charset=utf-8';
const UNAVAILABLE_RETRY_AFTER_S = 1;
const RATE_LIMITED_RETRY_AFTER_S = 1;

/** The answer to everything that is thrown. Set once, at the root, before any route. */
export function handleError(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  sendProblem(toOncepayError(error, request), request, reply);
}

/** What Fastify answers by itself, before any hook: bad addresses. Headers and log line can't come from hooks. */
export function handleFrameworkError(error: FastifyError, request: FastifyRequest, reply: FastifyReply): void {
  reply.headers(API_HEADERS);
  sendProblem(toOncepayError(error, request), request, reply);
  request.log.info({ method: request.method, status: reply.statusCode }, 'request');
}

/** Sends a refusal as `application/problem+json`, with the headers that its code asks for. */
export function sendProblem(error: OncepayError, request: FastifyRequest, reply: FastifyReply): void {
  Object.assign(request, { problem_code: error.code });
  const retry_after_s = error.extra.retry_after_s ?? defaultRetryAfter_s(error);
  if (retry_after_s !== undefined) reply.header('retry-after', String(Math.max(1, Math.ceil(retry_after_s))));
  if (error.code === 'unauthenticated') reply.header('www-authenticate', challenge(request));
  reply
    .code(PROBLEMS[error.code].status)
    .header('request-id', request.id)
    .header('content-type', PROBLEM_CONTENT_TYPE)
    .send(JSON.stringify(problemBody(error, request.id)));
}

/** What a thrown value means for the caller; defects and outages are logged here, with all that the answer hides. */
function toOncepayError(error: unknown, request: FastifyRequest): OncepayError {
  if (error instanceof OncepayError) {
    if (error.cause !== undefined) request.log.warn({ err: error.cause, code: error.code }, error.message);
    return error;
  }
  const refusal = frameworkRefusal(error, request);
  if (refusal !== null) return refusal;
  if (isUnavailable(error)) {
    request.log.warn({ err: error }, 'a request could not be served: the database is not available');
    return new OncepayError('unavailable', 'The service can’t reach its database for the moment. Try again.');
  }
  request.log.error({ err: error }, 'a request failed unexpectedly');
  return new OncepayError('internal', 'An unexpected error. Retry with the same Idempotency-Key.');
}

/** Fastify's own refusals in our words; null where the error is none of them. */
function frameworkRefusal(error: unknown, request: FastifyRequest): OncepayError | null {
  if (typeof error !== 'object' || error === null) return null;
  const { code, statusCode = 500 } = error as Partial<FastifyError>;
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new OncepayError('body_too_large', 'The body is larger than this route accepts.');
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
    case 'FST_ERR_ROUTE_MISSING_CONTENT_TYPE':
      return new OncepayError('unsupported_media_type', 'The body must be application/json in UTF-8.');
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new OncepayError('malformed_body', 'The body does not have the length that Content-Length announced.');
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new OncepayError('uri_too_long', 'A part of the path is longer than accepted.');
    case 'FST_ERR_BAD_URL':
      return new OncepayError('validation_failed', 'The path is not valid.', {
        errors: [{ path: 'path', message: 'is not valid percent-encoding' }],
      });
    case 'FST_ERR_NOT_FOUND':
      return new OncepayError('not_found', 'There is nothing at this address.');
    default:
      // Statuses of other errors are not trusted: a provider's SDK puts its own there. But a body that breaks off can
      // only be that, and files of pages are refused by who serves them (a path with "..", say).
      if (statusCode === 400 && !request.raw.complete) {
        return new OncepayError('malformed_body', 'The body could not be read to its end.');
      }
      if (statusCode >= 400 && statusCode < 500 && request.routeOptions.config.page === true) {
        return new OncepayError('not_found', 'There is nothing at this address.');
      }
      return null;
  }
}

function defaultRetryAfter_s(error: OncepayError): number | undefined {
  if (error.code === 'unavailable') return UNAVAILABLE_RETRY_AFTER_S;
  return error.code === 'rate_limited' ? RATE_LIMITED_RETRY_AFTER_S : undefined;
}

/** RFC 6750: an error code only where credentials were sent. */
function challenge(request: FastifyRequest): string {
  const sent = request.headers.authorization !== undefined;
  return sent ? 'Bearer realm="oncepay", error="invalid_token"' : 'Bearer realm="oncepay"';
}

/** What Node could not read as HTTP: there is no request and no reply, only the connection, which ends after this. */
export function handleClientError(
  this: FastifyInstance,
  error: NodeJS.ErrnoException,
  socket: Socket & { readonly _httpMessage?: { readonly headersSent: boolean } },
): void {
  if (error.code === 'ECONNRESET' || socket.destroyed) return;
  const request_id = newId();
  const problem = clientProblem(error);
  const { status } = PROBLEMS[problem.code];
  this.log.info({ request_id, status, code: problem.code, reason: error.code }, 'request');
  // Never into the middle of an answer that is on its way.
  if (socket.writable && socket._httpMessage?.headersSent !== true) {
    const body = JSON.stringify(problemBody(problem, request_id));
    const headers = {
      ...API_HEADERS,
      'content-type': PROBLEM_CONTENT_TYPE,
      'content-length': String(Buffer.byteLength(body)),
      'request-id': request_id,
      connection: 'close',
    };
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n${body}`);
  }
  socket.destroySoon();
}

function clientProblem(error: NodeJS.ErrnoException): OncepayError {
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    return new OncepayError('request_timeout', 'The whole request did not arrive in time.');
  }
  if (error.code === 'HPE_HEADER_OVERFLOW') {
    return new OncepayError('headers_too_large', 'All headers together are larger than accepted.');
  }
  return new OncepayError('validation_failed', 'This is not valid HTTP.', {
    errors: [{ path: 'request', message: 'is not valid HTTP/1.1' }],
  });
}
