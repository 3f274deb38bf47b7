import { z } from 'zod';
import { Payment } from './response-schemas.js';

/** Orders and accounts as callers see them: for OpenAPI and for tests; the answers are written by their routes. */

const Time = Payment.shape.created_at;
const Amount = Payment.shape.amount;
const Currency = Payment.shape.currency;
const Id = Payment.shape.id;

const SignedAmount = z
  .string()
  .regex(/^-?\d{1,16}(?:\.\d{2,4})?$/)
  .meta({ description: "A decimal string with exactly the currency's digits.", examples: ['-10.00'] });

export const Order = z
  .strictObject({
    id: z.string().meta({ description: 'The `order_id` of the order and of its payments.', examples: ['1001'] }),
    customer_id: z.string().meta({ examples: ['customer-42'] }),
    amount: Amount,
    currency: Currency,
    status: z.enum(['unpaid', 'partially_paid', 'paid']).meta({
      description: 'By what was captured and not refunded, in the currency of the order.',
      examples: ['paid'],
    }),
    amount_paid: Amount.meta({ description: 'Captured by all payments of the order.' }),
    amount_refunded: Amount.meta({ description: 'Of that, given back.' }),
    payments: z.array(Payment).meta({ description: 'The payments of the order, oldest first, at most 100.' }),
    created_at: Time.meta({ description: 'When the order was made, as its service tells.' }),
  })
  .meta({ id: 'Order', description: 'An order, and what was paid on it.' });

export const Account = z
  .strictObject({
    id: Id,
    kind: z.enum(['internal', 'external']).meta({
      description: '`external`: where money comes from and goes to; only that one may be below zero.',
      examples: ['internal'],
    }),
    name: z.string().meta({ examples: ['Ada Lovelace'] }),
    currency: Currency,
    balance: SignedAmount.meta({ description: 'The sum of all entries.', examples: ['90.00'] }),
    entry_count: z.int().meta({ description: 'How many entries it has.', examples: [2] }),
    created_at: Time,
    updated_at: Time,
  })
  .meta({ id: 'Account', description: 'An account of the wallet.' });

export const LedgerEntry = z
  .strictObject({
    sequence: z.int().meta({ description: 'Counts the entries of the account from 1.', examples: [2] }),
    transfer_id: z.string().meta({ format: 'uuid', examples: ['019b3c5e-7a10-7000-8000-000000000009'] }),
    amount: SignedAmount.meta({ description: 'Negative: taken from the account.' }),
    balance: SignedAmount.meta({ description: 'Afterwards.', examples: ['90.00'] }),
    created_at: Time,
  })
  .meta({ id: 'LedgerEntry', description: 'One side of a transfer. The entries of a transfer sum to zero.' });

export const LedgerEntryList = z
  .strictObject({
    data: z.array(LedgerEntry),
    next_cursor: z
      .string()
      .nullable()
      .meta({ description: 'For the next page; null on the last.', examples: [null] }),
  })
  .meta({ id: 'LedgerEntryList', description: 'A page of entries, newest first.' });
