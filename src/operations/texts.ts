import { formatAmount } from '../domain/money.js';
import type { Operation, Payment } from '../domain/payment.js';
import type { ListedAnomaly, ListedEvent, ListedOperation } from '../store/operator-lists.js';
import type { TimelineItem } from '../store/timeline.js';

/** A heading with its number, and the lines below it; of more lines than `limit` the first ones. */
export function section(title: string, lines: readonly string[], limit: number): string[] {
  const isCut = lines.length > limit;
  const shown = lines.slice(0, limit).map((line) => `  ${line}`);
  return [`${title}: ${isCut ? `more than ${limit}` : lines.length}`, ...shown, ...(isCut ? ['  …'] : [])];
}

export function operationLine(operation: ListedOperation): string {
  const { id, kind, payment_id, client_id, provider, external_payment_id } = operation;
  const amount =
    kind === 'cancel' ? '' : ` ${formatAmount(operation.amount_minor, operation.currency)} ${operation.currency}`;
  const next = operation.check_at === null ? '' : `, next at ${operation.check_at.toISOString()}`;
  return (
    `${id}  ${kind}${amount} (${operation.status}) since ${operation.since.toISOString()}  ` +
    `payment ${payment_id} "${external_payment_id}" of ${client_id} at ${provider}  ` +
    `attempts: ${operation.attempts_started} started, ${operation.attempts_finished} finished; asked ${operation.checks} times${next}`
  );
}

export function anomalyLine({ id, kind, payment_id, operation_id, detail, created_at }: ListedAnomaly): string {
  const about = payment_id === null ? 'no payment of ours' : `payment ${payment_id}`;
  const operation = operation_id === null ? '' : `, operation ${operation_id}`;
  return `${id}  ${kind} since ${created_at.toISOString()}  ${about}${operation}  ${pairs(detail)}`.trimEnd();
}

export function eventLine({ id, provider, event_id, type, failures, last_error, received_at }: ListedEvent): string {
  return `${id}  ${type} ${event_id} of ${provider} since ${received_at.toISOString()}  failed ${failures} times: ${last_error ?? ''}`;
}

export function shownOperation(operation: Operation, { currency }: Payment): string[] {
  return [
    `Operation ${operation.id}`,
    ...fields({
      kind: operation.kind,
      origin: operation.origin,
      try_number: operation.kind === 'charge' ? operation.try_number : null,
      status: operation.status,
      amount: operation.kind === 'cancel' ? null : `${formatAmount(operation.amount_minor, currency)} ${currency}`,
      idempotency_key: operation.idempotency_key,
      provider_key: operation.provider_key,
      provider_payment_id: operation.provider_payment_id,
      provider_refund_id: operation.provider_refund_id,
      failure: operation.failure?.code ?? null,
      attempts: `${operation.attempts_started} started, ${operation.attempts_finished} finished`,
      first_attempt_at: operation.first_attempt_at,
      closed_at: operation.closed_at,
      checks: operation.checks,
      needs_review_at: operation.needs_review_at,
      resolved_by: operation.resolved_by,
      created_at: operation.created_at,
      updated_at: operation.updated_at,
    }),
  ];
}

export function shownPayment(payment: Payment): string[] {
  const amount = (minor: bigint): string => `${formatAmount(minor, payment.currency)} ${payment.currency}`;
  return [
    `Payment ${payment.id}`,
    ...fields({
      status: payment.status,
      client: payment.client_id,
      external_payment_id: payment.external_payment_id,
      provider: payment.provider,
      provider_payment_id: payment.provider_payment_id,
      amount: amount(payment.amount_minor),
      captured: amount(payment.amount_captured_minor),
      refunded: amount(payment.amount_refunded_minor),
      refunds_pending: amount(payment.refund_reserved_minor - payment.amount_refunded_minor),
      capture: payment.capture,
      failure: payment.failure?.code ?? null,
      created_at: payment.created_at,
      updated_at: payment.updated_at,
    }),
  ];
}

export function timelineLine({ at, type, operation_id, detail }: TimelineItem): string {
  const operation = operation_id === null ? '' : `  ${operation_id}`;
  return `  ${at.toISOString()}  ${type}${operation}  ${pairs(detail)}`.trimEnd();
}

function fields(of: Readonly<Record<string, string | number | Date | null>>): string[] {
  return Object.entries(of).flatMap(([name, value]) => (value === null ? [] : [`  ${name}: ${wordOf(value)}`]));
}

/** `name=value` for what there is; texts with blanks, lists and the like as JSON, so that a line stays one line. */
function pairs(of: Readonly<Record<string, unknown>>): string {
  return Object.entries(of)
    .flatMap(([name, value]) => (value === null || value === undefined ? [] : [`${name}=${wordOf(value)}`]))
    .join(' ');
}

function wordOf(value: unknown): string {
  if (value instanceof Date) return value.toISOString();
  if (typeof value === 'string' && /^[\x21-\x7e]+$/.test(value)) return value;
  return JSON.stringify(value);
}
