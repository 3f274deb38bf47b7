import { z } from 'zod';
import { ERROR_CODES } from '../domain/errors.js';
import { FAILURE_CODES, OPERATION_KINDS, PAYMENT_STATUSES } from '../domain/payment.js';

/**
 * What callers get, for OpenAPI and for tests that hold the views against it. Answers themselves are written by the
 * view functions (`views.ts`), not by these schemas: an answer must not fail after the commit.
 */

const Id = z
  .string()
  .regex(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  .meta({ format: 'uuid', description: 'UUID v7.', examples: ['019b3c5e-7a10-7000-8000-000000000001'] });

const Time = z
  .string()
  .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  .meta({ format: 'date-time', description: 'RFC 3339, UTC, milliseconds.', examples: ['2026-01-31T10:00:00.000Z'] });

const Amount = z
  .string()
  .regex(/^\d{1,16}(?:\.\d{2,4})?$/)
  .meta({ description: "A decimal string with exactly the currency's digits.", examples: ['10.00'] });

const Currency = z
  .string()
  .regex(/^[A-Z]{3}$/)
  .meta({ description: 'ISO 4217 code.', examples: ['EUR'] });

export const Failure = z
  .strictObject({
    code: z.enum(FAILURE_CODES).meta({ description: 'Why, from a closed list.', examples: ['insufficient_funds'] }),
    message: z.string().meta({ description: 'The same for people.', examples: ['The account has too little money.'] }),
  })
  .meta({ id: 'Failure', description: 'Why the provider did not do it.' });

export const NextAction = z
  .strictObject({
    type: z.string().meta({ examples: ['redirect'] }),
    url: z.string().meta({ description: 'Where the customer goes.', examples: ['https://provider.example/actions/1'] }),
  })
  .meta({ id: 'NextAction', description: 'What the customer has to do before the payment goes on.' });

export const Payment = z
  .strictObject({
    id: Id,
    status: z.enum(PAYMENT_STATUSES).meta({
      description:
        '`processing`: the outcome is not known yet, and is being asked for. `failed`: declined; it may be paid again with a new key.',
      examples: ['succeeded'],
    }),
    amount: Amount,
    currency: Currency,
    amount_captured: Amount,
    amount_refunded: Amount,
    customer_id: z.string().meta({ examples: ['customer-42'] }),
    external_payment_id: z.string().meta({ examples: ['order-1001'] }),
    provider: z.string().meta({ examples: ['sandbox'] }),
    provider_payment_id: z
      .string()
      .nullable()
      .meta({ description: "The provider's name for the latest charge.", examples: ['sbx_pay_1'] }),
    payment_method: z
      .string()
      .nullable()
      .meta({ examples: ['pm_success'] }),
    capture: z.enum(['automatic', 'manual']),
    order_id: z
      .string()
      .nullable()
      .meta({ examples: ['1001'] }),
    description: z
      .string()
      .nullable()
      .meta({ examples: ['Two books'] }),
    metadata: z
      .record(z.string(), z.string())
      .nullable()
      .meta({ examples: [{ cart: 'c-118' }] }),
    failure: Failure.nullable(),
    next_action: NextAction.nullable(),
    created_at: Time,
    updated_at: Time,
  })
  .meta({ id: 'Payment', description: 'A payment as it is now, or in a replayed answer as it was then.' });

export const Refund = z
  .strictObject({
    id: Id,
    payment_id: Id,
    status: z.enum(['processing', 'succeeded', 'failed']).meta({ examples: ['succeeded'] }),
    amount: Amount,
    currency: Currency,
    reason: z
      .string()
      .nullable()
      .meta({ examples: ['Book came damaged'] }),
    provider_refund_id: z
      .string()
      .nullable()
      .meta({ examples: ['sbx_ref_1'] }),
    failure: Failure.nullable(),
    created_at: Time,
    updated_at: Time,
  })
  .meta({ id: 'Refund', description: 'Money given back.' });

export const PaymentList = z
  .strictObject({
    data: z.array(Payment),
    next_cursor: z
      .string()
      .nullable()
      .meta({ description: 'For the next page; null on the last.', examples: [null] }),
  })
  .meta({ id: 'PaymentList', description: 'A page of payments, newest first.' });

export const RefundList = z
  .strictObject({ data: z.array(Refund) })
  .meta({ id: 'RefundList', description: 'The refunds of a payment, oldest first.' });

const TIMELINE_TYPES = [
  'request',
  'operation',
  'attempt',
  'provider_event',
  'state_change',
  'anomaly',
  'operator',
] as const;

export const TimelineEntry = z
  .strictObject({
    at: Time,
    type: z.enum(TIMELINE_TYPES),
    operation_id: Id.nullable(),
    detail: z.record(z.string(), z.unknown()).meta({ description: 'By type; never a secret.' }),
  })
  .meta({ id: 'TimelineEntry', description: 'One thing that happened to a payment.' });

export const Timeline = z
  .strictObject({ data: z.array(TimelineEntry) })
  .meta({ id: 'Timeline', description: 'All that happened to a payment, in order.' });

export const KeyStatus = z
  .strictObject({
    key: z.string().meta({ examples: ['3f1c8a52-8a0e-4a5c-9d0a-0f6f1f0c9b11'] }),
    kind: z.enum(OPERATION_KINDS).meta({ description: 'What was asked for.', examples: ['charge'] }),
    state: z.enum(['in_progress', 'open', 'done']).meta({
      description:
        '`in_progress`: a request is running it. `open`: it was answered 202, the outcome is not known yet. `done`: the final answer is stored and replayed.',
      examples: ['done'],
    }),
    created_at: Time.meta({ description: 'When the key first came.' }),
    lease_until: Time.nullable().meta({ description: 'While in progress: from then on a retry takes over.' }),
    needs_review: z
      .boolean()
      .meta({ description: 'The provider could not be asked for the outcome; an operator settles it.' }),
    resource: z
      .strictObject({
        type: z.enum(['payment', 'refund']),
        id: Id,
        href: z.string().meta({ examples: ['/payments/019b3c5e-7a10-7000-8000-000000000001'] }),
        status: z.string().meta({ description: 'As it is now.', examples: ['succeeded'] }),
      })
      .nullable()
      .meta({ description: 'Null while nothing has begun.' }),
    expires_at: Time.nullable().meta({ description: 'When the stored answer goes; null before there is one.' }),
  })
  .meta({ id: 'KeyStatus', description: 'Where an idempotency key stands.' });

export const FieldErrorSchema = z
  .strictObject({
    path: z.string().meta({
      description: 'A JSON Pointer into the body, or `query/<name>`, `header/<name>`.',
      examples: ['/amount'],
    }),
    message: z.string().meta({ examples: ['must be greater than zero'] }),
  })
  .meta({ id: 'FieldError', description: 'What is wrong with one field.' });

export const Problem = z
  .strictObject({
    type: z
      .string()
      .meta({ description: 'A page that explains it: `/problems/{code}`.', examples: ['/problems/validation_failed'] }),
    title: z.string().meta({ examples: ['The request is not valid'] }),
    status: z
      .int()
      .min(400)
      .max(599)
      .meta({ examples: [400] }),
    detail: z
      .string()
      .meta({ description: 'What was wrong this time.', examples: ['/amount must be greater than zero.'] }),
    instance: z.string().optional(),
    code: z.enum(ERROR_CODES).meta({ examples: ['validation_failed'] }),
    request_id: z.string().meta({ description: 'The same as in the header Request-Id.' }),
    errors: z.array(FieldErrorSchema).optional(),
    payment_id: Id.optional().meta({ description: 'The payment that is in the way, if it is yours.' }),
    status_url: z.string().optional().meta({ description: "Where the key's state can be read." }),
    payment_status: z.enum(PAYMENT_STATUSES).optional().meta({ description: 'The state that does not allow it.' }),
    remaining: Amount.optional().meta({ description: 'What is left to capture or refund.' }),
    currency: z
      .string()
      .optional()
      .meta({ description: 'The currency of `remaining`.', examples: ['EUR'] }),
    failure_code: z.string().optional().meta({ description: 'Why the provider refused a capture or cancel.' }),
  })
  .meta({ id: 'Problem', description: 'A problem as RFC 9457 has it (application/problem+json).' });
