import { z } from 'zod';

/**
 * The few fields of Stripe's objects that we read, from answers and from webhooks alike. A webhook is rendered in the
 * API version of its endpoint, not in ours, so nothing but the essential is required, and a field that is of another
 * kind than expected counts as absent.
 */
const amount = z.number().int().nonnegative();
const text = z.string().nullish().catch(null);
const optionalAmount = amount.nullish().catch(null);

/** Read further by somebody else, or not at all. */
const anything = z.unknown().optional();

const metadata = z.record(z.string(), z.string()).nullish().catch(null);

const problem = z
  .object({ type: text, code: text, decline_code: text, param: text, message: text })
  .nullish()
  .catch(null);

/** A reference to another object: its id, or the object itself where it was expanded. */
const reference = z
  .union([z.string(), z.object({ id: z.string() }).loose()])
  .nullish()
  .catch(null);

const charge = z.object({
  id: z.string(),
  object: z.literal('charge'),
  amount,
  currency: z.string(),
  amount_captured: optionalAmount,
  amount_refunded: optionalAmount,
  captured: z.boolean().nullish().catch(null),
  payment_intent: reference,
  balance_transaction: anything,
  metadata,
});

const intent = z.object({
  id: z.string(),
  object: z.literal('payment_intent'),
  status: z.string(),
  amount,
  currency: z.string(),
  amount_received: optionalAmount,
  capture_method: text,
  cancellation_reason: text,
  last_payment_error: problem,
  next_action: z.record(z.string(), z.unknown()).nullish().catch(null),
  latest_charge: anything,
  /** Until API version 2022-11-15, instead of `latest_charge`. */
  charges: z
    .object({ data: z.array(z.unknown()) })
    .nullish()
    .catch(null),
  metadata,
});

const refund = z.object({
  id: z.string(),
  object: z.literal('refund'),
  status: text,
  amount,
  currency: z.string(),
  created: z.number().nullish().catch(null),
  failure_reason: text,
  charge: anything,
  payment_intent: reference,
  metadata,
});

const event = z.object({
  id: z.string(),
  object: z.literal('event'),
  type: z.string(),
  created: z.number().nullish().catch(null),
  livemode: z.boolean().nullish().catch(null),
  data: z.object({ object: anything }).nullish().catch(null),
});

export type IntentShape = z.infer<typeof intent>;
export type ChargeShape = z.infer<typeof charge>;
export type RefundShape = z.infer<typeof refund>;
export type EventShape = z.infer<typeof event>;

export const readIntent = reader(intent);
export const readCharge = reader(charge);
export const readRefund = reader(refund);
export const readEvent = reader(event);

function reader<T>(schema: z.ZodType<T>): (value: unknown) => T | undefined {
  return (value) => schema.safeParse(value).data;
}

/** The id that a reference gives, expanded or not. */
export function idOf(value: unknown): string | null {
  if (typeof value === 'string') return value;
  const id = value !== null && typeof value === 'object' && 'id' in value ? value.id : null;
  return typeof id === 'string' ? id : null;
}
