import rateLimit from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { OncepayError } from '../domain/errors.js';

/** Failed authentications per address and minute before the answer is 429. Valid keys are never counted. */
const FAILURES_PER_MINUTE = 60;
const MINUTE_MS = 60_000;
const SECOND_MS = 1000;
/** Addresses and clients remembered at once; the least recently seen are forgotten first. */
const REMEMBERED = 10_000;

export interface FailureLimitOptions {
  /** How many count apart from each other behind one address. Each gives its share, so that all give the whole. */
  readonly processes: number;
}

export interface RateLimitOptions extends FailureLimitOptions {
  /** 0: no limit. */
  readonly per_second: number;
}

function shareOf(limit: number, processes: number): number {
  return Math.max(1, Math.floor(limit / processes));
}

/** Requests per client and second, on every route with a scope. Registered after authentication. */
export const clientRateLimit = fastifyPlugin(async function clientRateLimit(
  app: FastifyInstance,
  { per_second, processes }: RateLimitOptions,
) {
  if (per_second === 0) return;
  app.addHook('onRoute', (route) => {
    if (route.config?.scope === undefined) route.config = { ...route.config, rateLimit: false };
  });
  await app.register(rateLimit, {
    max: shareOf(per_second, processes),
    timeWindow: SECOND_MS,
    cache: REMEMBERED,
    enableDraftSpec: true,
    keyGenerator: (request) => request.client?.id ?? request.ip,
    errorResponseBuilder: (_request, { ttl }) => rateLimited('This client sends too many requests.', ttl),
  });
});

export type CountFailure = (request: FastifyRequest) => Promise<void>;

/**
 * Counts failed authentications by address, in a bucket of their own: whoever guesses keys is told 429, while clients
 * with a valid key behind the same address go on. Forwarding headers are not trusted, so they change nothing.
 */
export async function failureLimit(app: FastifyInstance, { processes }: FailureLimitOptions): Promise<CountFailure> {
  // In a scope of its own: its plugin must not limit routes, only count where it is told to.
  let count: CountFailure | undefined;
  await app.register(async (scope) => {
    await scope.register(rateLimit, { global: false, cache: REMEMBERED });
    const check = scope.createRateLimit({ max: shareOf(FAILURES_PER_MINUTE, processes), timeWindow: MINUTE_MS });
    count = async (request) => {
      const limit = await check(request);
      if (!limit.isAllowed && limit.isExceeded) {
        throw rateLimited('Too many failed authentications from this address.', limit.ttl);
      }
    };
  });
  if (count === undefined) throw new Error('the limit of failed authentications was not set up');
  return count;
}

function rateLimited(detail: string, ttl_ms: number): OncepayError {
  return new OncepayError('rate_limited', detail, { retry_after_s: Math.max(1, Math.ceil(ttl_ms / 1000)) });
}
