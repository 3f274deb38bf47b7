import { z } from 'zod';
import type { FieldError } from '../domain/errors.js';
import { PAYMENT_STATUSES, type PaymentStatus } from '../domain/payment.js';
import { type CursorPosition, decodeCursor, encodeCursor } from './cursor.js';
import { type FieldDescription, PROVIDER_NAME, text } from './fields.js';
import { toMicrosecondsUtc } from './time.js';
import { queryErrors, validationFailed } from './validation.js';

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 100;
/** Plain decimal digits: no sign, exponent, hexadecimal, space or leading zero. */
const LIMIT = /^(?:[1-9]\d?|100)$/;

/** Null: not filtered by. Times are RFC 3339 UTC with microseconds; `created_from` is included, `created_to` is not. */
export interface PaymentFilters {
  readonly status: PaymentStatus | null;
  readonly customer_id: string | null;
  readonly external_payment_id: string | null;
  readonly provider: string | null;
  readonly created_from: string | null;
  readonly created_to: string | null;
}

export interface PaymentListQuery {
  readonly filters: PaymentFilters;
  /** 1–100. */
  readonly limit: number;
  /** The page begins after this position; null: at the newest. */
  readonly after: CursorPosition | null;
}

/** Fastify gives a repeated parameter as an array. */
const once = () => 'must be given once';

function parameter(
  isValid: (value: string) => boolean,
  message: string,
  meta: FieldDescription & Record<string, unknown>,
) {
  return z
    .string({ error: once })
    .check((context) => {
      if (!isValid(context.value)) context.issues.push({ code: 'custom', message, input: context.value });
    })
    .meta(meta);
}

function timeParameter(description: string) {
  return parameter(
    (value) => toMicrosecondsUtc(value) !== null,
    'must be a time of RFC 3339 such as 2026-01-31T10:00:00Z (the "+" of an offset is written %2B)',
    { format: 'date-time', description, examples: ['2026-01-31T10:00:00Z'] },
  );
}

/** The query parameters of `GET /payments`. */
export const PaymentListParameters = z
  .strictObject({
    status: parameter(isPaymentStatus, `must be one of: ${PAYMENT_STATUSES.join(', ')}`, {
      enum: [...PAYMENT_STATUSES],
      description: 'Only payments in this status.',
      examples: ['succeeded'],
    }).optional(),
    customer_id: text(
      { min: 1, max: 64 },
      { description: 'Only of this customer.', examples: ['customer-42'] },
      once,
    ).optional(),
    external_payment_id: text(
      { min: 1, max: 128, printable_ascii: true },
      { description: 'Only the payment of this name in your world.', examples: ['order-1001'] },
      once,
    ).optional(),
    provider: parameter((value) => PROVIDER_NAME.test(value), 'must be the name of a provider', {
      pattern: PROVIDER_NAME.source,
      description: 'Only of this provider, also of one that is no longer in use.',
      examples: ['sandbox'],
    }).optional(),
    created_from: timeParameter('Only payments made at this time or later.').optional(),
    created_to: timeParameter('Only payments made before this time.').optional(),
    limit: parameter((value) => LIMIT.test(value), `must be a number from 1 to ${MAX_LIMIT} in plain digits`, {
      type: 'integer',
      minimum: 1,
      maximum: MAX_LIMIT,
      default: DEFAULT_LIMIT,
      description: 'How many payments a page has at most.',
      examples: ['20'],
    }).optional(),
    cursor: text(
      { min: 1, max: 255 },
      { description: '`next_cursor` of the page before, with the same filters.', examples: [] },
      once,
    ).optional(),
  })
  .meta({ id: 'PaymentListParameters', description: 'Filters and paging of the list of payments.' });

/**
 * Reads the query parameters of `GET /payments` strictly: unknown, repeated, blank and misspelt ones are refused,
 * because a filter that is silently ignored shows somebody the wrong payments.
 * @param query as Fastify parses it: strings, arrays for repeated names
 * @throws OncepayError validation_failed with paths `query/<name>`
 */
export function parsePaymentListQuery(query: unknown): PaymentListQuery {
  const parsed = PaymentListParameters.safeParse(query);
  if (!parsed.success) throw validationFailed(queryErrors(parsed.error));
  const { status, customer_id, external_payment_id, provider, created_from, created_to, limit, cursor } = parsed.data;
  const filters: PaymentFilters = {
    status: status !== undefined && isPaymentStatus(status) ? status : null,
    customer_id: customer_id ?? null,
    external_payment_id: external_payment_id ?? null,
    provider: provider ?? null,
    created_from: created_from === undefined ? null : toMicrosecondsUtc(created_from),
    created_to: created_to === undefined ? null : toMicrosecondsUtc(created_to),
  };
  // Both are written alike, so that they sort as text.
  if (filters.created_from !== null && filters.created_to !== null && filters.created_from > filters.created_to) {
    throw refused('created_to', 'must not be before created_from');
  }
  const after = cursor === undefined ? null : decodeCursor(cursor, paymentList(filters));
  if (cursor !== undefined && after === null) {
    throw refused('cursor', 'is not a cursor of this list; take next_cursor as it came, with the same filters');
  }
  return { filters, limit: limit === undefined ? DEFAULT_LIMIT : Number(limit), after };
}

/** `next_cursor` for a page of payments that ended at this position. */
export function paymentCursor(filters: PaymentFilters, last: CursorPosition): string {
  return encodeCursor(last, paymentList(filters));
}

/**
 * For routes without query parameters.
 * @throws OncepayError validation_failed
 */
export function refuseQuery(query: unknown): void {
  const parsed = NoParameters.safeParse(query);
  if (!parsed.success) throw validationFailed(queryErrors(parsed.error));
}

const NoParameters = z.strictObject({});

function paymentList(filters: PaymentFilters): readonly unknown[] {
  const { status, customer_id, external_payment_id, provider, created_from, created_to } = filters;
  return ['payments', status, customer_id, external_payment_id, provider, created_from, created_to];
}

function isPaymentStatus(value: string): value is PaymentStatus {
  return (PAYMENT_STATUSES as readonly string[]).includes(value);
}

function refused(name: keyof z.infer<typeof PaymentListParameters>, message: string) {
  const error: FieldError = { path: `query/${name}`, message };
  return validationFailed([error]);
}
