import type { Failure, FailureCode, NextAction, Operation, Payment } from '../domain/payment.js';

/** How rows are read: one list of columns and one mapping for each table. */

type Row = Readonly<Record<string, unknown>>;

/** The column pairs that are folded into one object. */
interface Pairs {
  readonly failure_code?: FailureCode | null;
  readonly failure_message?: string | null;
  readonly next_action_type?: string | null;
  readonly next_action_url?: string | null;
}

const PAYMENT_FIELDS = `id, client_id, provider, external_payment_id, command_hash, version, status, amount_minor, currency,
  amount_captured_minor, amount_refunded_minor, refund_reserved_minor, customer_id, provider_payment_id, payment_method,
  capture, order_id, description, metadata, return_url, failure_code, failure_message, next_action_type, next_action_url,
  created_at, updated_at`;
const OPERATION_FIELDS = `id, payment_id, kind, origin, try_number, status, amount_minor, idempotency_key, key_hash,
  command_hash, provider_key, payment_method, reason, excess_operation_id, provider_payment_id, provider_refund_id,
  failure_code, failure_message, attempts_started, attempts_finished, first_attempt_at, closed_at, checks,
  needs_review_at, resolved_by, saga_id, step_name, traceparent, created_at, updated_at`;

export const paymentColumns = (alias: string): string =>
  PAYMENT_FIELDS.replace(/\b[a-z_]+\b/g, (name) => `${alias}.${name}`);
export const operationColumns = (alias: string): string =>
  OPERATION_FIELDS.replace(/\b[a-z_]+\b/g, (name) => `${alias}.${name}`);

function failureOf({ failure_code: code, failure_message: message }: Pairs): Failure | null {
  return code && typeof message === 'string' ? { code, message } : null;
}

function nextActionOf({ next_action_type: type, next_action_url: url }: Pairs): NextAction | null {
  return type && url ? { type, url } : null;
}

/** The row's own types are held by the table's checks; this only folds column pairs into objects. */
export function toPayment(row: Row): Payment {
  const { failure_code, failure_message, next_action_type, next_action_url, ...rest } = row;
  return { ...rest, failure: failureOf(row), next_action: nextActionOf(row) } as unknown as Payment;
}

export function toOperation(row: Row): Operation {
  const { failure_code, failure_message, ...rest } = row;
  return { ...rest, failure: failureOf(row) } as unknown as Operation;
}
