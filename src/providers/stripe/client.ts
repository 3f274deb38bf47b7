import Stripe from 'stripe';

type HttpClient = ReturnType<typeof Stripe.createFetchHttpClient>;

/** A request that got no whole answer. `transport_code`: Node's or undici's word for why (`ECONNREFUSED`, …). */
export class TransportError extends Error {
  override readonly name = 'TransportError';
  constructor(readonly transport_code: string) {
    super(`no answer from Stripe (${transport_code})`);
  }
}

export interface StripeClientOptions {
  readonly secret_key: string;
  /** Null: api.stripe.com. For test servers: scheme, host and port. */
  readonly api_base: string | null;
}

/** The official SDK, with one attempt per call and a limit on the whole call. */
export function createStripeClient(options: StripeClientOptions): Stripe {
  return new Stripe(options.secret_key, {
    ...(options.api_base === null ? {} : addressOf(options.api_base)),
    httpClient: createHttpClient(),
    maxNetworkRetries: 0,
    telemetry: false,
  });
}

function addressOf(api_base: string): { host: string; port: number; protocol: 'http' | 'https' } {
  const url = new URL(api_base);
  const protocol = url.protocol === 'http:' ? 'http' : 'https';
  // The SDK knows no base path: one would be dropped without a word, and requests would go elsewhere.
  if (!/^https?:$/.test(url.protocol) || url.pathname !== '/' || url.search || url.username) {
    throw new Error('STRIPE_API_BASE must be http(s)://host:port without a path');
  }
  return { host: url.hostname, port: Number(url.port) || (protocol === 'http' ? 80 : 443), protocol };
}

/**
 * The SDK's fetch client, whose time limit covers the whole exchange and really aborts it (its Node client only limits
 * silence on the socket), with two things added:
 *
 * - Redirects are not followed: a payment is never sent on to another address.
 * - Connection errors are renamed. The SDK repeats a request once after ECONNRESET and EPIPE even with its retries off
 *   (RequestSender._shouldRetry); the error's `code` is how it tells, and a second attempt behind our back would make
 *   "connection refused" after a reset look as if nothing had been sent.
 */
function createHttpClient(): HttpClient {
  const client = Stripe.createFetchHttpClient((url, init) => fetch(url, { ...init, redirect: 'manual' }));
  const send = client.makeRequest.bind(client);
  client.makeRequest = async (...request) => {
    try {
      return await send(...request);
    } catch (error) {
      throw new TransportError(transportCode(error));
    }
  };
  return client;
}

/** The first error code along the causes; `unknown` where nobody gave one. */
export function transportCode(error: unknown): string {
  let current = error;
  for (let depth = 0; depth < 5 && current instanceof Error; depth += 1) {
    const { code, transport_code, exception, cause } = current as Error & Record<string, unknown>;
    for (const word of [transport_code, code]) if (typeof word === 'string' && word) return word;
    current = exception ?? cause;
  }
  return 'unknown';
}

/** What is left of a time limit, by the monotonic clock. */
export interface Deadline {
  /** Milliseconds left: a whole number, at least 1. */
  left_ms(): number;
}

export function startDeadline(timeout_ms: number): Deadline {
  const end = performance.now() + timeout_ms;
  return { left_ms: () => Math.max(1, Math.floor(end - performance.now())) };
}
