import Stripe from 'stripe';
import { ProviderError } from '../provider.js';
import { failureOf } from './failures.js';
import { TransportError } from './http-client.js';
import { type IntentShape, readIntent } from './shapes.js';

/** Our words for the usual ones; the rest go by Node's. */
const TRANSPORT_REASONS: ReadonlyMap<string, string> = new Map([
  ['ECONNREFUSED', 'connection_refused'],
  ['ECONNRESET', 'connection_reset'],
  ['EPIPE', 'connection_reset'],
  ['ENOTFOUND', 'unknown_host'],
  ['EAI_AGAIN', 'unknown_host'],
]);

/**
 * What an error of the SDK means for this attempt (design, section 3). The error itself is not kept as a cause: it
 * carries the whole answer, with client secrets and the payment method's details, and causes end up in logs.
 */
export function providerError(error: unknown): ProviderError {
  if (error instanceof ProviderError) return error;
  if (!(error instanceof Stripe.errors.StripeError)) {
    return new ProviderError('unknown', 'unreadable_answer', "Stripe's answer could not be read");
  }
  if (error instanceof Stripe.errors.StripeConnectionError) return connectionError(error);
  const said = `Stripe answered ${described(error)}`;
  const reason = unknownReason(error);
  if (reason !== undefined) return new ProviderError('unknown', reason, said);
  const failure = failureOf(problemOf(error));
  return new ProviderError('refused', error.code ?? `http_${error.statusCode ?? 400}`, `${said}: ${failure.message}`, {
    failure,
  });
}

function connectionError({ detail }: Stripe.errors.StripeConnectionError): ProviderError {
  const error: unknown = detail;
  const { transport_code, connected } = error instanceof TransportError ? error : new TransportError('unknown', true);
  const reason = TRANSPORT_REASONS.get(transport_code) ?? transport_code.toLowerCase();
  return connected
    ? new ProviderError('unknown', reason, `no answer from Stripe (${transport_code})`)
    : new ProviderError('not_sent', reason, `no connection to Stripe (${transport_code})`);
}

/**
 * Answers that are never an outcome of a payment, by their word for the timeline; undefined for a refusal of this very
 * request. https://docs.stripe.com/api/errors and https://docs.stripe.com/api/idempotent_requests: a 5xx is stored
 * under the key and replayed, although the operation may have happened; a key under way is a 409, an object in use a
 * 429 `lock_timeout`.
 */
function unknownReason(error: Stripe.errors.StripeError): string | undefined {
  const status = error.statusCode;
  if (status === undefined) return 'unreadable_answer';
  if (error.rawType === 'idempotency_error') return status === 409 ? 'key_in_use' : 'key_mismatch';
  if (status === 401 || status === 403) return 'not_permitted';
  if (status === 409) return 'key_in_use';
  if (status === 429 || error.code === 'rate_limit') return error.code === 'lock_timeout' ? 'locked' : 'rate_limited';
  return REFUSALS.has(status) && STRIPE_TYPES.has(error.rawType ?? '') ? undefined : `http_${status}`;
}

const REFUSALS = new Set([400, 402, 404]);
/** What a refusal of Stripe's own says of itself; something else on the way may answer 404 as well. */
const STRIPE_TYPES = new Set<string>(['card_error', 'invalid_request_error']);

function described(error: Stripe.errors.StripeError): string {
  const words = [String(error.statusCode ?? 'something unreadable'), error.code, error.decline_code];
  const request = error.requestId ? ` (${error.requestId})` : '';
  return words.filter(Boolean).join(' ') + request;
}

function problemOf(error: Stripe.errors.StripeError): Parameters<typeof failureOf>[0] {
  const { code, decline_code, param, message, rawType } = error;
  return { type: rawType, code, decline_code, param, message };
}

/** The PaymentIntent that came with a refusal: what Stripe has, although it refused. */
export function refusedIntent(error: unknown): IntentShape | undefined {
  if (!(error instanceof Stripe.errors.StripeError) || unknownReason(error) !== undefined) return undefined;
  return readIntent(error.payment_intent);
}

/**
 * The PaymentIntent that came with a decline, or with another refusal of "create and confirm": it exists, so this is
 * an outcome and no error. What this request met is the newest word on why.
 */
export function declinedIntent(error: unknown): IntentShape | undefined {
  const intent = refusedIntent(error);
  if (!intent || !(error instanceof Stripe.errors.StripeError)) return undefined;
  const status = intent.status === 'requires_confirmation' ? 'requires_payment_method' : intent.status;
  return { ...intent, status, last_payment_error: problemOf(error) };
}

/** Whether Stripe refused because the PaymentIntent is not in a state for it: done already, or gone. */
export function isUnexpectedState(error: unknown): boolean {
  if (!(error instanceof Stripe.errors.StripeError) || unknownReason(error) !== undefined) return false;
  return UNEXPECTED_STATE.has(error.code ?? '');
}

const UNEXPECTED_STATE = new Set([
  'payment_intent_unexpected_state',
  'charge_already_captured',
  'charge_expired_for_capture',
]);

/** `resource_missing`: the object is not known to this account, in this mode. */
export function isMissing(error: unknown): boolean {
  return error instanceof Stripe.errors.StripeError && error.statusCode === 404 && error.code === 'resource_missing';
}

/** An error while only asking: whatever it is, it says nothing about what was asked. */
export function askingError(error: unknown): ProviderError {
  const translated = providerError(error);
  if (translated.kind !== 'refused') return translated;
  return new ProviderError('unknown', translated.reason, `${translated.message} (asked only)`);
}
