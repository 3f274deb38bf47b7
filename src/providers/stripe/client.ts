import Stripe from 'stripe';
import { createHttpClient } from './http-client.js';

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
  // URL writes an IPv6 address in brackets, a socket takes it without.
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  return { host, port: Number(url.port) || (protocol === 'http' ? 80 : 443), protocol };
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
