import type Stripe from 'stripe';
import type { ChargeFact, RefundFact } from '../../domain/fact.js';
import {
  type CallOptions,
  type CancelRequest,
  type CaptureRequest,
  type ChargeRequest,
  ProviderError,
  type ProviderMetadata,
  type RefundRequest,
} from '../provider.js';
import { toStripeAmount } from './amounts.js';
import { type Deadline, startDeadline } from './client.js';
import { declinedIntent, isUnexpectedState, providerError, refusedIntent } from './errors.js';
import { chargeFact, CLOSED_AFTER_DECLINE, refundFact } from './facts.js';
import { type IntentShape, readIntent, readRefund } from './shapes.js';

const NO_PAYMENT_METHOD = { code: 'payment_method_invalid', message: 'Stripe needs a payment_method.' } as const;

/**
 * Creates and confirms a PaymentIntent in one request. A decline is an outcome: the intent is cancelled at once, so
 * that nobody can pay it later (`closed`); where that can't be known in the time left, `closed` is false.
 */
export async function charge(stripe: Stripe, request: ChargeRequest, options: CallOptions): Promise<ChargeFact> {
  const deadline = startDeadline(options.timeout_ms);
  const params = chargeParams(request);
  let fact: ChargeFact;
  try {
    fact = readable(await stripe.paymentIntents.create(params, oneAttempt(options.provider_key, deadline)));
  } catch (error) {
    const intent = declinedIntent(error);
    if (!intent) throw providerError(error);
    fact = factOf(intent);
  }
  return fact.status === 'failed' && !fact.closed ? closeDeclined(stripe, fact, options, deadline) : fact;
}

/**
 * Only what the caller named and what a lost database would not make anew: Stripe compares the parameters of a repeated
 * key, so a change here, even an `expand`, is a key mismatch for every charge under way during the upgrade.
 */
function chargeParams(request: ChargeRequest): Stripe.PaymentIntentCreateParams {
  const amount = toStripeAmount(request.amount_minor, request.currency);
  if (request.payment_method === null) {
    throw new ProviderError('refused', 'no_payment_method', NO_PAYMENT_METHOD.message, { failure: NO_PAYMENT_METHOD });
  }
  return {
    amount,
    currency: request.currency.toLowerCase(),
    confirm: true,
    payment_method: request.payment_method,
    // `automatic_async`, the API's default, would call a charge succeeded before it is captured.
    capture_method: request.capture,
    metadata: metadataOf(request.metadata),
    ...returnParams(request.return_url),
  };
}

/**
 * Without an address to come back to, nobody can be sent anywhere: a payment that needs the customer's action would
 * hang in `requires_action` with nothing but Stripe.js to resolve it. Stripe is told to decline it instead.
 */
function returnParams(return_url: string | null): Partial<Stripe.PaymentIntentCreateParams> {
  if (return_url === null) {
    return {
      automatic_payment_methods: { enabled: true, allow_redirects: 'never' },
      error_on_requires_action: true,
    };
  }
  return { automatic_payment_methods: { enabled: true, allow_redirects: 'always' }, return_url };
}

async function closeDeclined(
  stripe: Stripe,
  declined: ChargeFact,
  options: CallOptions,
  deadline: Deadline,
): Promise<ChargeFact> {
  const after = await tryToClose(stripe, declined.provider_payment_id, options, deadline);
  if (after === undefined) return declined;
  if (after.status === 'canceled' || after.status === 'failed') return { ...declined, closed: after.closed };
  return after;
}

/** What the intent is after an attempt to cancel it; undefined: not known. */
async function tryToClose(
  stripe: Stripe,
  provider_payment_id: string,
  options: CallOptions,
  deadline: Deadline,
): Promise<ChargeFact | undefined> {
  try {
    return readable(
      await stripe.paymentIntents.cancel(
        provider_payment_id,
        { cancellation_reason: CLOSED_AFTER_DECLINE },
        oneAttempt(`${options.provider_key}-close`, deadline),
      ),
    );
  } catch (error) {
    const intent = refusedIntent(error);
    return intent && chargeFact(intent);
  }
}

/** Captures an authorization. Stripe releases what is not captured. */
export async function capture(stripe: Stripe, request: CaptureRequest, options: CallOptions): Promise<ChargeFact> {
  const deadline = startDeadline(options.timeout_ms);
  // No metadata: Stripe would write it over that of the charge.
  const params = { amount_to_capture: toStripeAmount(request.amount_minor, request.currency) };
  try {
    return readable(
      await stripe.paymentIntents.capture(
        request.provider_payment_id,
        params,
        oneAttempt(options.provider_key, deadline),
      ),
    );
  } catch (error) {
    return asItIs(stripe, request.provider_payment_id, error, deadline);
  }
}

/** Cancels an authorization, an open action or a declined try. */
export async function cancel(stripe: Stripe, request: CancelRequest, options: CallOptions): Promise<ChargeFact> {
  const deadline = startDeadline(options.timeout_ms);
  try {
    return readable(
      await stripe.paymentIntents.cancel(
        request.provider_payment_id,
        { cancellation_reason: 'requested_by_customer' },
        oneAttempt(options.provider_key, deadline),
      ),
    );
  } catch (error) {
    return asItIs(stripe, request.provider_payment_id, error, deadline);
  }
}

/**
 * A capture or cancel refused because the intent is past it: the charge as it now is, where that is an end; otherwise
 * (Stripe is processing it, say) the refusal stands.
 */
async function asItIs(stripe: Stripe, id: string, error: unknown, deadline: Deadline): Promise<ChargeFact> {
  const refusal = providerError(error);
  if (!isUnexpectedState(error)) throw refusal;
  const fact = await refusedFact(stripe, id, error, deadline);
  if (fact.status === 'succeeded' || fact.closed) return fact;
  throw refusal;
}

async function refusedFact(stripe: Stripe, id: string, error: unknown, deadline: Deadline): Promise<ChargeFact> {
  const intent = refusedIntent(error);
  if (intent) return factOf(intent);
  try {
    return readable(await stripe.paymentIntents.retrieve(id, {}, { timeout: deadline.left_ms() }));
  } catch (cause) {
    // Refused for a state that can't be seen now: not an outcome.
    throw new ProviderError(
      'unknown',
      'state_unknown',
      `${providerError(cause).message} after ${providerError(error).message}`,
    );
  }
}

/** Refunds all or part of a charge. */
export async function refund(stripe: Stripe, request: RefundRequest, options: CallOptions): Promise<RefundFact> {
  const deadline = startDeadline(options.timeout_ms);
  const params: Stripe.RefundCreateParams = {
    payment_intent: request.provider_payment_id,
    amount: toStripeAmount(request.amount_minor, request.currency),
    ...reasonParams(request.reason, request.metadata),
  };
  try {
    const answer = readRefund(await stripe.refunds.create(params, oneAttempt(options.provider_key, deadline)));
    const fact = answer && refundFact(answer, request.provider_payment_id);
    if (!fact) throw unreadable();
    return fact;
  } catch (error) {
    throw providerError(error);
  }
}

/** `fraudulent` is not passed on: it puts the customer's card and address on Stripe's block lists. */
const STRIPE_REASONS = new Set(['duplicate', 'requested_by_customer']);
/** https://docs.stripe.com/api/metadata: up to 500 characters a value. */
const MAX_METADATA_VALUE_LENGTH = 500;

function reasonParams(
  reason: string | null,
  metadata: ProviderMetadata,
): Pick<Stripe.RefundCreateParams, 'reason' | 'metadata'> {
  const ours = metadataOf(metadata);
  if (reason === null || reason === '') return { metadata: ours };
  if (STRIPE_REASONS.has(reason)) return { metadata: ours, reason };
  return { metadata: { ...ours, reason: Array.from(reason).slice(0, MAX_METADATA_VALUE_LENGTH).join('') } };
}

function metadataOf(metadata: ProviderMetadata): Record<string, string> {
  const { reference, installation_id, external_payment_id } = metadata;
  return { reference, installation_id, external_payment_id };
}

function oneAttempt(idempotencyKey: string, deadline: Deadline): Stripe.RequestOptions {
  return { idempotencyKey, timeout: deadline.left_ms() };
}

/** An answer of Stripe's as a fact. @throws ProviderError `unknown` where it can't be read */
export function readable(answer: unknown): ChargeFact {
  const intent = readIntent(answer);
  if (!intent) throw unreadable();
  return factOf(intent);
}

function factOf(intent: IntentShape): ChargeFact {
  const fact = chargeFact(intent);
  if (!fact) throw unreadable();
  return fact;
}

export function unreadable(): ProviderError {
  return new ProviderError('unknown', 'unreadable_answer', "Stripe's answer could not be read");
}
