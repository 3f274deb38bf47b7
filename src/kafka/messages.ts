import { z } from 'zod';
import { text } from '../contract/fields.js';
import { AmountError, parseAmount } from '../domain/money.js';
import { Poison } from './dead-letters.js';

/** What comes in, as openapi/asyncapi.yaml describes it. Commands are read strictly, facts of others tolerantly. */

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
/** No colon: the two are joined by one in a step's idempotency key. */
const SAGA_PART = /^[A-Za-z0-9._-]{1,128}$/;
const CLIENT_ID = /^[a-z0-9][a-z0-9._-]{0,63}$/;

const uuid = z.string().toLowerCase().regex(UUID, { error: 'must be a UUID' });
const client_id = z.string().regex(CLIENT_ID, { error: 'must be the id of a client' });
const saga_part = z
  .string()
  .regex(SAGA_PART, { error: 'must be 1 to 128 letters, digits, dots, dashes or underscores' });
const amount = z.string();
const currency = z.string().regex(/^[A-Z]{3}$/, { error: 'must be an ISO 4217 code' });
const name = (max: number) => text({ min: 1, max }, { description: '', examples: [] });

/** The part of a saga's command that says whose step it is. What else it holds is the body of the same HTTP request. */
export const SagaStep = z.looseObject({ saga_id: saga_part, step_name: saga_part, client_id });
export type SagaStep = z.infer<typeof SagaStep>;

export const OrderCreated = z.looseObject({
  order_id: name(128),
  client_id,
  customer_id: name(64),
  amount,
  currency,
});

export const DebitAccount = z.strictObject({
  transfer_id: uuid,
  client_id,
  account_id: uuid,
  credit_account_id: uuid,
  amount,
  currency,
  saga_id: saga_part.optional(),
  step_name: saga_part.optional(),
});

/** @throws Poison `invalid_data` that says what is wrong, without the value */
export function readData<T>(schema: z.ZodType<T>, data: unknown): T {
  const parsed = schema.safeParse(data);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const place = issue?.code === 'unrecognized_keys' ? issue.keys.join(', ') : (issue?.path.join('.') ?? '');
  throw new Poison('invalid_data', `${place || 'data'}: ${issue?.message ?? 'is not valid'}`);
}

/** @throws Poison `invalid_data` */
export function readAmount(text_amount: string, of_currency: string): bigint {
  try {
    return parseAmount(text_amount, of_currency);
  } catch (error) {
    if (error instanceof AmountError) throw new Poison('invalid_data', `amount: ${error.message}`);
    throw error;
  }
}
