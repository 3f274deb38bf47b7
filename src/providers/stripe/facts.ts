import type { ChargeFact, RefundFact } from '../../domain/fact.js';
import type { Failure, NextAction } from '../../domain/payment.js';
import type { ProviderMetadata } from '../provider.js';
import { fromStripeAmount } from './amounts.js';
import { failureOf } from './failures.js';
import { type ChargeShape, idOf, type IntentShape, readCharge, type RefundShape } from './shapes.js';

/**
 * Written to a PaymentIntent that we cancel because its attempt was declined, so that it can be told apart from one
 * that a client wanted cancelled.
 */
export const CLOSED_AFTER_DECLINE = 'abandoned';
/** Stripe's words for what it cancelled by itself: an authorization nobody captured, an action nobody took. */
const CANCELED_BY_STRIPE = new Set(['automatic', 'expired']);

const AUTHORIZATION_EXPIRED: Failure = {
  code: 'authorization_expired',
  message: 'The authorization expired before it was captured.',
};
const ACTION_EXPIRED: Failure = { code: 'provider_rejected', message: 'The payment was not completed in time.' };
const REFUND_FAILED_MESSAGE = 'The refund could not be completed';

/** A PaymentIntent as a charge in our words; undefined where its amounts or its status can't be read. */
export function chargeFact(intent: IntentShape): ChargeFact | undefined {
  const currency = intent.currency.toUpperCase();
  const charge = latestCharge(intent);
  const state = stateOf(intent);
  const captured = intent.status === 'succeeded' ? (intent.amount_received ?? intent.amount) : 0;
  const refunded = charge && captured > 0 ? refundedOf(charge) : 0;
  const amount_minor = fromStripeAmount(intent.amount, currency);
  const amount_captured_minor = fromStripeAmount(captured, currency);
  const amount_refunded_minor = fromStripeAmount(refunded, currency);
  if (!state || amount_minor === undefined || amount_captured_minor === undefined) return undefined;
  return {
    type: 'charge',
    ...state,
    provider_payment_id: intent.id,
    amount_minor,
    currency,
    amount_captured_minor,
    amount_refunded_minor: amount_refunded_minor ?? 0n,
    next_action: state.status === 'requires_action' ? nextAction(intent.next_action) : null,
  };
}

/** A captured Charge of a PaymentIntent; undefined for one that holds no money (any more) or can't be read. */
export function capturedChargeFact(charge: ChargeShape): ChargeFact | undefined {
  const provider_payment_id = idOf(charge.payment_intent);
  if (charge.captured !== true || provider_payment_id === null) return undefined;
  const currency = charge.currency.toUpperCase();
  const amount_minor = fromStripeAmount(charge.amount, currency);
  const amount_captured_minor = fromStripeAmount(charge.amount - releasedOf(charge), currency);
  const amount_refunded_minor = fromStripeAmount(refundedOf(charge), currency);
  if (amount_minor === undefined || amount_captured_minor === undefined) return undefined;
  return {
    type: 'charge',
    status: 'succeeded',
    provider_payment_id,
    amount_minor,
    currency,
    amount_captured_minor,
    amount_refunded_minor: amount_refunded_minor ?? 0n,
    failure: null,
    next_action: null,
    closed: false,
  };
}

type State = Pick<ChargeFact, 'status' | 'failure' | 'closed'>;

/** https://docs.stripe.com/payments/paymentintents/lifecycle */
function stateOf(intent: IntentShape): State | undefined {
  const open = (status: ChargeFact['status']): State => ({ status, failure: null, closed: false });
  switch (intent.status) {
    case 'succeeded':
      return open('succeeded');
    case 'requires_capture':
      return open('authorized');
    case 'requires_action':
      return open('requires_action');
    case 'processing':
    case 'requires_confirmation':
      return open('processing');
    case 'requires_payment_method':
      // Without an error no attempt has ended: ours, which creates and confirms in one request, is still under way.
      if (!intent.last_payment_error) return open('processing');
      return { status: 'failed', failure: failureOf(intent.last_payment_error), closed: false };
    case 'canceled':
      return canceledState(intent);
    default:
      return undefined;
  }
}

function canceledState(intent: IntentShape): State {
  if (intent.cancellation_reason === CLOSED_AFTER_DECLINE && intent.last_payment_error) {
    return { status: 'failed', failure: failureOf(intent.last_payment_error), closed: true };
  }
  if (CANCELED_BY_STRIPE.has(intent.cancellation_reason ?? '')) {
    const held = intent.capture_method === 'manual' && idOf(intent.latest_charge) !== null;
    return { status: 'failed', failure: held ? AUTHORIZATION_EXPIRED : ACTION_EXPIRED, closed: true };
  }
  return { status: 'canceled', failure: null, closed: true };
}

function latestCharge(intent: IntentShape): ChargeShape | undefined {
  return readCharge(intent.latest_charge) ?? readCharge(intent.charges?.data[0]);
}

/**
 * What really went back to the customer. When less than the authorization is captured, Stripe reports the remainder,
 * which was never taken, as refunded: woocommerce-gateway-stripe #1073 shows 20675 authorized, 20300 received and 375
 * "refunded". It is left out.
 */
export function refundedOf(charge: ChargeShape): number {
  const refunded = charge.amount_refunded ?? 0;
  const released = releasedOf(charge);
  return refunded >= released ? refunded - released : refunded;
}

/** The part of an authorization that was let go when the rest was captured. */
export function releasedOf(charge: ChargeShape): number {
  return Math.max(0, charge.amount - (charge.amount_captured ?? charge.amount));
}

/** `redirect_to_url` has it under `url`; vouchers, QR codes and transfers under a "hosted" page of Stripe's. */
const ACTION_URLS = [
  'url',
  'hosted_voucher_url',
  'hosted_instructions_url',
  'hosted_verification_url',
  'mobile_auth_url',
  'image_url_png',
];

/** What the customer has to do; null where it needs Stripe.js (`use_stripe_sdk`), which an address can't carry. */
function nextAction(action: IntentShape['next_action']): NextAction | null {
  const type = action?.type;
  if (!action || typeof type !== 'string' || type === 'use_stripe_sdk') return null;
  const url = findUrl(action[type], 3);
  return url === null ? null : { type, url };
}

function findUrl(value: unknown, depth: number): string | null {
  if (depth === 0 || value === null || typeof value !== 'object') return null;
  const fields = new Map(Object.entries(value));
  for (const name of ACTION_URLS) {
    const url: unknown = fields.get(name);
    if (typeof url === 'string' && url.startsWith('https://')) return url;
  }
  for (const inner of fields.values()) {
    const url = findUrl(inner, depth - 1);
    if (url !== null) return url;
  }
  return null;
}

const REFUND_STATUS: ReadonlyMap<string, RefundFact['status']> = new Map<string, RefundFact['status']>([
  ['succeeded', 'succeeded'],
  ['pending', 'processing'],
  ['requires_action', 'processing'],
  ['failed', 'failed'],
  ['canceled', 'canceled'],
]);

/**
 * A Refund in our words; undefined where it belongs to no PaymentIntent (so not to us) or can't be read.
 * `asked_for`: the PaymentIntent that it is known to be of, should it not say so itself.
 */
export function refundFact(refund: RefundShape, asked_for: string | null = null): RefundFact | undefined {
  const currency = refund.currency.toUpperCase();
  const status = REFUND_STATUS.get(refund.status ?? '');
  const amount_minor = fromStripeAmount(refund.amount, currency);
  const provider_payment_id = idOf(refund.payment_intent) ?? asked_for;
  if (!status || amount_minor === undefined || provider_payment_id === null) return undefined;
  return {
    type: 'refund',
    status,
    provider_refund_id: refund.id,
    provider_payment_id,
    amount_minor,
    currency,
    failure: status === 'failed' || status === 'canceled' ? refundFailure(refund) : null,
  };
}

/** https://docs.stripe.com/refunds, "Failed refunds" */
function refundFailure(refund: RefundShape): Failure {
  const reason = refund.failure_reason ?? (refund.status === 'canceled' ? 'canceled' : 'unknown');
  const code = reason === 'expired_or_canceled_card' ? 'expired_card' : 'processing_error';
  return { code, message: `${REFUND_FAILED_MESSAGE} (${reason}).` };
}

/** The metadata that we gave: all three, or it is not ours. */
export function ourMetadata(metadata: IntentShape['metadata']): ProviderMetadata | null {
  const reference = metadata?.reference;
  const installation_id = metadata?.installation_id;
  const external_payment_id = metadata?.external_payment_id;
  if (!reference || !installation_id || !external_payment_id) return null;
  return { reference, installation_id, external_payment_id };
}
