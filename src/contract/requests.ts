import type { z } from 'zod';
import { containsCardNumber } from '../domain/card-number.js';
import type { CancelCommand, CaptureCommand, ChargeCommand, RefundCommand } from '../domain/command.js';
import { commandHash } from '../domain/command-hash.js';
import { type FieldError, OncepayError } from '../domain/errors.js';
import { AmountError, currencyDigits, formatAmount, parseAmount } from '../domain/money.js';
import type { Payment } from '../domain/payment.js';
import { CancelRequest, CaptureRequest, ChargeRequest, RefundRequest } from './request-schemas.js';
import { jsonPointer } from './text.js';
import { bodyErrors, validationFailed } from './validation.js';

/**
 * Validates the body of a charge and turns it into a command. The hash covers what was sent and nothing else: the
 * same body means the same command after the deployment's default provider has changed.
 * @param context the providers of this deployment; the first is the default
 * @throws OncepayError validation_failed with every error found, card_number_rejected
 */
export function parseChargeCommand(body: unknown, context: { readonly providers: readonly string[] }): ChargeCommand {
  const parsed = ChargeRequest.safeParse(body);
  const errors = parsed.success ? [] : bodyErrors(parsed.error, body);
  const money = readMoney(body, errors);
  if (!parsed.success) throw validationFailed(errors);
  const request = parsed.data;
  const provider = request.provider ?? context.providers[0];
  if (provider === undefined || !context.providers.includes(provider)) {
    errors.push({ path: '/provider', message: `must be one of: ${context.providers.join(', ')}` });
  }
  // zod leaves such a member out of its result without a word: what was validated would not be what was sent.
  if (request.metadata !== undefined && Object.hasOwn(sentMetadata(body), '__proto__')) {
    errors.push({ path: '/metadata/__proto__', message: 'is not a name that metadata can have' });
  }
  if (errors.length > 0 || money === null || provider === undefined) throw validationFailed(errors);
  refuseCardNumbers(request);
  return {
    kind: 'charge',
    hash: commandHash('charge', null, { ...request, amount: formatAmount(money, request.currency) }),
    amount_minor: money,
    currency: request.currency,
    customer_id: request.customer_id,
    external_payment_id: request.external_payment_id,
    provider,
    payment_method: request.payment_method ?? null,
    capture: request.capture ?? 'automatic',
    order_id: request.order_id ?? null,
    description: request.description ?? null,
    metadata: request.metadata ?? null,
    return_url: request.return_url ?? null,
  };
}

/**
 * Validates the body of a capture; no body at all is `{}`.
 * @throws OncepayError validation_failed
 */
export function parseCaptureCommand(body: unknown, payment: Pick<Payment, 'id' | 'currency'>): CaptureCommand {
  const request = parseBody(CaptureRequest, body === undefined ? {} : body);
  const amount_minor = optionalAmount(request.amount, payment.currency);
  const hash = commandHash('capture', payment.id, normalised(request, amount_minor, payment.currency));
  return { kind: 'capture', hash, payment_id: payment.id, amount_minor };
}

/**
 * Validates the body of a cancel: `{}` or none at all.
 * @throws OncepayError validation_failed
 */
export function parseCancelCommand(body: unknown, payment: Pick<Payment, 'id'>): CancelCommand {
  const request = parseBody(CancelRequest, body === undefined ? {} : body);
  return { kind: 'cancel', hash: commandHash('cancel', payment.id, request), payment_id: payment.id };
}

/**
 * Validates the body of a refund. It needs a body: a lost one must not give back everything.
 * @throws OncepayError validation_failed, card_number_rejected
 */
export function parseRefundCommand(body: unknown, payment: Pick<Payment, 'id' | 'currency'>): RefundCommand {
  const request = parseBody(RefundRequest, body);
  const amount_minor = optionalAmount(request.amount, payment.currency);
  if (request.reason !== undefined && containsCardNumber(request.reason)) throw cardNumber('/reason');
  const hash = commandHash('refund', payment.id, normalised(request, amount_minor, payment.currency));
  return { kind: 'refund', hash, payment_id: payment.id, amount_minor, reason: request.reason ?? null };
}

/** The amount of a charge; null with its errors added, unless the schema has already found one there. */
function readMoney(body: unknown, errors: FieldError[]): bigint | null {
  if (typeof body !== 'object' || body === null) return null;
  const { amount, currency } = body as { readonly amount?: unknown; readonly currency?: unknown };
  if (typeof currency !== 'string' || errors.some(({ path }) => path === '/currency')) return null;
  if (currencyDigits(currency) === undefined) {
    errors.push({ path: '/currency', message: 'is not a currency of ISO 4217 that can be charged' });
    return null;
  }
  if (typeof amount !== 'string' || errors.some(({ path }) => path === '/amount')) return null;
  try {
    return parseAmount(amount, currency);
  } catch (error) {
    errors.push(amountError(error));
    return null;
  }
}

function optionalAmount(amount: string | undefined, currency: string): bigint | null {
  if (amount === undefined) return null;
  try {
    return parseAmount(amount, currency);
  } catch (error) {
    throw validationFailed([amountError(error)]);
  }
}

function amountError(error: unknown): FieldError {
  if (error instanceof AmountError) return { path: '/amount', message: error.message };
  throw error;
}

/** The body as it is hashed: "10", "10.0" and "10.00" are the same amount; an omitted one stays omitted. */
function normalised<T extends { readonly amount?: string | undefined }>(
  request: T,
  amount: bigint | null,
  currency: string,
): T {
  return amount === null ? request : { ...request, amount: formatAmount(amount, currency) };
}

function sentMetadata(body: unknown): object {
  const { metadata } = body as { readonly metadata: object };
  return metadata;
}

function refuseCardNumbers(request: z.infer<typeof ChargeRequest>): void {
  const { payment_method, description, metadata } = request;
  if (payment_method !== undefined && containsCardNumber(payment_method)) throw cardNumber('/payment_method');
  if (description !== undefined && containsCardNumber(description)) throw cardNumber('/description');
  if (metadata === undefined) return;
  for (const key of Object.keys(metadata)) {
    if (containsCardNumber(key)) throw cardNumber('/metadata', 'has a name that looks like a card number');
    if (containsCardNumber(metadata[key] ?? '')) throw cardNumber(jsonPointer(['metadata', key]));
  }
}

/** Says where, never the number itself. */
function cardNumber(path: string, message = 'looks like it holds a card number'): OncepayError {
  return new OncepayError(
    'card_number_rejected',
    `${path} ${message}. Send a token that the payment provider has made.`,
    {
      errors: [{ path, message }],
    },
  );
}

function parseBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (!parsed.success) throw validationFailed(bodyErrors(parsed.error, body));
  return parsed.data;
}
