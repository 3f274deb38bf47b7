import { type PaymentProvider } from '../provider.js';
import { createStripeClient } from './client.js';
import { completeRefundEvent } from './foreign-refund.js';
import { retrieve } from './look-up.js';
import { cancel, capture, charge, refund } from './operations.js';
import { isLiveKey, parseWebhook } from './webhooks.js';

/** Stripe removes keys once "they're at least 24 hours old". The margin is the caller's. */
const KEY_MEMORY_MS = 24 * 60 * 60 * 1000;

export interface StripeOptions {
  /** `sk_live_…` or `sk_test_…` (or restricted, `rk_…`). */
  readonly secret_key: string;
  /** Null: Stripe itself. Else a test server, `http://host:port`. */
  readonly api_base: string | null;
  /** `whsec_…`, newest first. */
  readonly webhook_secrets: readonly string[];
}

/**
 * The adapter for Stripe: PaymentIntents, refunds and snapshot webhooks, through the official SDK.
 * @throws Error for a blank key or secret, or an address with a path
 */
export function createStripeProvider(options: StripeOptions): PaymentProvider {
  if (options.secret_key.trim() === '') throw new Error('STRIPE_SECRET_KEY is blank');
  const secrets = options.webhook_secrets;
  // A blank secret would accept what anybody signs with nothing.
  if (secrets.length === 0 || secrets.some((secret) => secret.trim() === '')) {
    throw new Error('STRIPE_WEBHOOK_SECRETS is empty or has a blank entry');
  }
  const stripe = createStripeClient(options);
  const webhooks = { secrets, live: isLiveKey(options.secret_key) };
  return {
    name: 'stripe',
    keyMemory_ms: KEY_MEMORY_MS,
    charge: (request, call) => charge(stripe, request, call),
    capture: (request, call) => capture(stripe, request, call),
    cancel: (request, call) => cancel(stripe, request, call),
    refund: (request, call) => refund(stripe, request, call),
    retrieve: (target, call) => retrieve(stripe, target, call.timeout_ms),
    parseWebhook: (headers, rawBody) => parseWebhook(stripe, webhooks, headers, rawBody),
    completeEvent: (event, call) => completeRefundEvent(stripe, event, call.timeout_ms),
  };
}
