import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { z } from 'zod';
import { InvalidSignature, type ProviderEvent } from '../provider.js';
import {
  chargeFact,
  eventRefundShape,
  ourMetadata,
  paymentShape,
  type RefundShape,
  refundFact,
  wholeRefund,
} from './shapes.js';

/** How far the signed time may be from ours, either way. */
const TOLERANCE_S = 300;
const LONGEST_ID = 255;

const eventShape = z.object({ type: z.string().min(1), timestamp: z.string(), data: z.unknown().optional() });
const paymentData = z.object({ payment: paymentShape });
const refundData = z.object({ payment: paymentShape, refund: eventRefundShape });

const PAYMENT_EVENTS = new Set([
  'payment.authorized',
  'payment.succeeded',
  'payment.failed',
  'payment.canceled',
  'payment.requires_action',
]);
const REFUND_EVENTS = new Set(['refund.succeeded', 'refund.failed', 'refund.canceled']);

/**
 * The keys of `whsec_…` secrets.
 * @throws Error for an empty one, which anybody could sign with, or one that is no base64; never shows it
 */
export function decodeSecrets(secrets: readonly string[]): Buffer[] {
  return secrets.map((secret) => {
    const text = secret.startsWith('whsec_') ? secret.slice('whsec_'.length) : secret;
    if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text)) {
      throw new Error('SANDBOX_WEBHOOK_SECRETS has an entry that is not whsec_ followed by base64');
    }
    return Buffer.from(text, 'base64');
  });
}

/**
 * Verifies by the Standard Webhooks scheme, over the raw bytes, and only then reads.
 * @throws InvalidSignature where it is not signed by any of the keys, or at another time
 * @throws Error where it is, but what it says can't be read; the message says why
 */
export function parseWebhook(keys: readonly Buffer[], headers: IncomingHttpHeaders, rawBody: Buffer): ProviderEvent {
  const event_id = verify(keys, headers, rawBody);
  const { type, timestamp, data } = read(eventShape, parseJson(rawBody), 'the event');
  const occurred_at = new Date(timestamp);
  if (Number.isNaN(occurred_at.getTime())) throw new Error('the event has no readable timestamp');
  const about = { event_id, type, occurred_at };
  if (PAYMENT_EVENTS.has(type)) {
    const { payment } = read(paymentData, data, `the data of ${type}`);
    const charge_metadata = ourMetadata(payment);
    return { ...about, charge_metadata, refund_metadata: null, fact: chargeFact(payment) };
  }
  if (REFUND_EVENTS.has(type)) {
    const { payment, refund: told } = read(refundData, data, `the data of ${type}`);
    const refund = wholeRefund(told, payment);
    const charge_metadata = ourMetadata(payment);
    const refund_metadata = refundMetadata(charge_metadata, refund);
    return { ...about, charge_metadata, refund_metadata, fact: refundFact(refund) };
  }
  return { ...about, charge_metadata: null, refund_metadata: null, fact: null };
}

/** A refund carries its reference only; the rest is its payment's. */
function refundMetadata(
  charge: ProviderEvent['charge_metadata'],
  { reference }: RefundShape,
): ProviderEvent['refund_metadata'] {
  return charge && reference !== null ? { ...charge, reference } : null;
}

function verify(keys: readonly Buffer[], headers: IncomingHttpHeaders, rawBody: Buffer): string {
  const id = headers['webhook-id'];
  const timestamp = headers['webhook-timestamp'];
  const signatures = headers['webhook-signature'];
  if (typeof id !== 'string' || typeof timestamp !== 'string' || typeof signatures !== 'string') {
    throw new InvalidSignature('webhook-id, webhook-timestamp and webhook-signature are needed, once each');
  }
  if (!/^[\x21-\x7e]+$/.test(id) || id.length > LONGEST_ID) throw new InvalidSignature('webhook-id can’t be read');
  if (!/^\d{1,12}$/.test(timestamp)) throw new InvalidSignature('webhook-timestamp can’t be read');
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > TOLERANCE_S) {
    throw new InvalidSignature('signed more than 5 minutes before or after now');
  }
  const given = signatures.split(' ').flatMap((part) => (part.startsWith('v1,') ? Buffer.from(part.slice(3)) : []));
  const isSigned = keys.some((key) => {
    const wanted = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(rawBody).digest('base64');
    const bytes = Buffer.from(wanted);
    return given.some((signature) => signature.length === bytes.length && timingSafeEqual(signature, bytes));
  });
  if (!isSigned) throw new InvalidSignature('no signature of this body by a configured secret');
  return id;
}

function parseJson(rawBody: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(rawBody));
  } catch (error) {
    throw new Error('the event is signed, but is no JSON in UTF-8', { cause: error });
  }
}

function read<Shape extends z.ZodType>(shape: Shape, value: unknown, what: string): z.output<Shape> {
  const result = shape.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new Error(`${what} can't be read: ${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}`);
}
