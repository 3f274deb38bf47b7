import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { OncepayError } from '../domain/errors.js';
import { parseStrictJson } from '../contract/strict-json.js';

export const BODY_LIMIT_BYTES = 64 * 1024;
/** A body that is too large, up to here, is read and thrown away, so that the caller surely sees the answer. */
const DISCARD_LIMIT_BYTES = 1024 * 1024;

const JSON_UTF8 = /^application\/json[ \t]*(?:;[ \t]*charset=(?:utf-8|"utf-8")[ \t]*)?$/i;
const METHODS_WITH_BODY = new Set(['POST', 'PUT', 'PATCH', 'DELETE', 'QUERY']);

/**
 * Bodies: strict JSON in UTF-8 and nothing else. What can be refused by the headers alone is refused before a byte of
 * the body is read. No body at all is `undefined`: whether one is needed is the route's question.
 */
export const bodyParser = fastifyPlugin(async function bodyParser(app: FastifyInstance) {
  app.removeAllContentTypeParsers();
  // Not onRequest: a route's rate limit runs after all of those, and it comes before the body.
  app.addHook('preParsing', (request, reply, payload, done) => {
    done(METHODS_WITH_BODY.has(request.method) ? bodyRefusal(request, reply) : null, payload);
  });
  app.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (_request, body, done) => {
    try {
      done(null, body.length === 0 ? undefined : parseStrictJson(body));
    } catch (error) {
      done(error as Error);
    }
  });
});

/** For routes with `config.raw_body`, in a scope of their own: the bytes as they came, whatever their type. */
export function useRawBodies(scope: FastifyInstance, limit_bytes: number): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser<Buffer>('*', { parseAs: 'buffer', bodyLimit: limit_bytes }, (_request, body, done) => {
    done(null, body);
  });
}

function bodyRefusal(request: FastifyRequest, reply: FastifyReply): OncepayError | null {
  const { headers, routeOptions } = request;
  if (routeOptions.config.raw_body !== true) {
    if (headers['content-encoding'] !== undefined) {
      return new OncepayError('unsupported_media_type', 'Bodies are accepted without any Content-Encoding only.');
    }
    const content_type = headers['content-type'];
    const has_body = headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
    if (content_type === undefined ? has_body : !JSON_UTF8.test(content_type) || isRepeated(request, 'content-type')) {
      return new OncepayError('unsupported_media_type', 'Send Content-Type: application/json, in UTF-8.');
    }
  }
  const length = Number(headers['content-length'] ?? 0);
  const limit_bytes = routeOptions.bodyLimit;
  if (length <= limit_bytes) return null;
  if (length > DISCARD_LIMIT_BYTES) reply.header('connection', 'close');
  return new OncepayError('body_too_large', `The body is larger than the ${limit_bytes} bytes that are accepted.`);
}

/** Node keeps the first line of such headers and drops the others silently. */
export function isRepeated(request: FastifyRequest, name: string): boolean {
  const { rawHeaders } = request.raw;
  let lines = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const header = rawHeaders[i];
    if (header?.length === name.length && header.toLowerCase() === name) lines += 1;
  }
  return lines > 1;
}
