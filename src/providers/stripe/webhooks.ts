import type { IncomingHttpHeaders } from 'node:http';
import type Stripe from 'stripe';
import type { Fact } from '../../domain/fact.js';
import { InvalidSignature, type ProviderEvent, type ProviderMetadata } from '../provider.js';
import { capturedChargeFact, chargeFact, ourMetadata, refundFact } from './facts.js';
import { type EventShape, readCharge, readEvent, readIntent, readRefund } from './shapes.js';

/** How far the signed time may be from ours, either way. */
const TOLERANCE_S = 300;

/** Whether a key is for real money; undefined where it does not tell (test servers). */
export function isLiveKey(secret_key: string): boolean | undefined {
  const mode = /^(?:sk|rk)_(live|test)_/.exec(secret_key)?.[1];
  return mode === undefined ? undefined : mode === 'live';
}

export interface WebhookOptions {
  /** Newest first; several while one is being rolled. */
  readonly secrets: readonly string[];
  /** Events of the other mode are acknowledged and change nothing. Undefined: both modes count. */
  readonly live: boolean | undefined;
}

/**
 * Verifies a notification over its raw bytes, then reads it. Everything that is not about a charge or refund, that is
 * of another mode or that another API version writes in a way that we can't read, is an event without a fact.
 * @throws InvalidSignature; an ordinary Error for what is signed and yet no event, so that it is sent again and seen
 */
export function parseWebhook(
  stripe: Stripe,
  options: WebhookOptions,
  headers: IncomingHttpHeaders,
  rawBody: Buffer,
): ProviderEvent {
  const signed_at_s = verify(stripe, options.secrets, headers['stripe-signature'], rawBody);
  const json = parseJson(rawBody);
  const event = readEvent(json);
  if (!event) return unreadEvent(json, signed_at_s);
  const about = sameMode(event, options.live) ? aboutOf(event) : NOTHING;
  const occurred_at = new Date((event.created ?? signed_at_s) * 1000);
  return { event_id: event.id, type: event.type, occurred_at, ...about };
}

function sameMode(event: EventShape, live: boolean | undefined): boolean {
  return live === undefined || typeof event.livemode !== 'boolean' || event.livemode === live;
}

type About = Pick<ProviderEvent, 'charge_metadata' | 'refund_metadata' | 'fact'>;

const NOTHING: About = { charge_metadata: null, refund_metadata: null, fact: null };

/**
 * What an endpoint at Stripe is to be subscribed to (docs/stripe.md), with API version 2024-10-28 or later: since then
 * `refund.*` tells of every refund (https://docs.stripe.com/changelog/acacia/2024-10-28/refund-webhook-update). `payment_intent.created` is not among them: its
 * snapshot is older than the confirmation that the same request made.
 */
export const EVENTS_TO_SUBSCRIBE = [
  'payment_intent.amount_capturable_updated',
  'payment_intent.canceled',
  'payment_intent.payment_failed',
  'payment_intent.processing',
  'payment_intent.requires_action',
  'payment_intent.succeeded',
  'refund.created',
  'refund.failed',
  'refund.updated',
] as const;

const INTENT_EVENTS = new Set<string>(EVENTS_TO_SUBSCRIBE.filter((type) => type.startsWith('payment_intent.')));
/** Understood where they are sent as well; they say nothing that the others do not. */
const CHARGE_EVENTS = new Set(['charge.captured', 'charge.refunded']);
/** Before API version 2024-10-28 refunds of charges had no events but `charge.refund.updated`. */
const REFUND_EVENTS = new Set<string>([
  ...EVENTS_TO_SUBSCRIBE.filter((type) => type.startsWith('refund.')),
  'charge.refund.updated',
]);

function aboutOf(event: EventShape): About {
  const object = event.data?.object;
  if (INTENT_EVENTS.has(event.type)) {
    const intent = readIntent(object);
    return intent ? aboutCharge(ourMetadata(intent.metadata), chargeFact(intent)) : NOTHING;
  }
  if (CHARGE_EVENTS.has(event.type)) {
    const charge = readCharge(object);
    return charge ? aboutCharge(ourMetadata(charge.metadata), capturedChargeFact(charge)) : NOTHING;
  }
  if (REFUND_EVENTS.has(event.type)) {
    const refund = readRefund(object);
    if (!refund) return NOTHING;
    return { charge_metadata: null, refund_metadata: ourMetadata(refund.metadata), fact: refundFact(refund) ?? null };
  }
  return NOTHING;
}

function aboutCharge(charge_metadata: ProviderMetadata | null, fact: Fact | undefined): About {
  return { charge_metadata, refund_metadata: null, fact: fact ?? null };
}

/**
 * The SDK's own check against every secret, and ours of the time: the SDK's only looks back.
 * @returns the signed time, in seconds
 */
function verify(
  stripe: Stripe,
  secrets: readonly string[],
  header: string | string[] | undefined,
  rawBody: Buffer,
): number {
  if (typeof header !== 'string') throw new InvalidSignature('no stripe-signature header');
  // The SDK takes the last of several times; exactly one leaves nothing to argue about.
  const times = header.split(',').filter((item) => item.startsWith('t='));
  const signed_at_s = times.length === 1 && /^t=\d{1,12}$/.test(times[0] ?? '') ? Number(times[0]?.slice(2)) : NaN;
  if (Number.isNaN(signed_at_s)) throw new InvalidSignature('no single time in stripe-signature');
  if (!secrets.some((secret) => isSigned(stripe, secret, header, rawBody))) {
    throw new InvalidSignature('no v1 signature of this body by a configured secret within 5 minutes');
  }
  if (signed_at_s - Date.now() / 1000 > TOLERANCE_S) throw new InvalidSignature('signed in the future');
  return signed_at_s;
}

function isSigned(stripe: Stripe, secret: string, header: string, rawBody: Buffer): boolean {
  try {
    return stripe.webhooks.signature?.verifyHeader(rawBody, header, secret, TOLERANCE_S) === true;
  } catch {
    // Not only StripeSignatureVerificationError: an empty `v1=` makes the SDK's comparison throw a plain Error.
    return false;
  }
}

function parseJson(rawBody: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(rawBody));
  } catch {
    throw new Error('a signed notification of Stripe is no JSON in UTF-8');
  }
}

/** Signed by Stripe but no snapshot event: a "thin" one (`v2.core.event`), or something to come. */
function unreadEvent(json: unknown, signed_at_s: number): ProviderEvent {
  const fields = json !== null && typeof json === 'object' ? (json as Record<string, unknown>) : {};
  const { id, type } = fields;
  if (typeof id !== 'string' || id === '') throw new Error('a signed notification of Stripe is no event');
  const occurred_at = new Date(signed_at_s * 1000);
  return { event_id: id, type: typeof type === 'string' ? type : 'unknown', occurred_at, ...NOTHING };
}
