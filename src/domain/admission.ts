import type { CancelCommand, CaptureCommand, RefundCommand } from './command.js';
import { OncepayError } from './errors.js';
import { formatAmount } from './money.js';
import type { Operation, Payment } from './payment.js';

export type Admission =
  | { readonly type: 'admitted'; readonly amount_minor: bigint }
  /** `for_now`: waiting may change it, so the key is freed instead of keeping the refusal. */
  | { readonly type: 'refused'; readonly error: OncepayError; readonly for_now: boolean };

/**
 * Whether a capture, cancel or refund may begin, decided under the payment's lock. Caps hold here and only here: what a
 * provider tells later is a fact (design, section 2).
 */
export function admit(
  payment: Payment,
  operations: readonly Operation[],
  command: CaptureCommand | CancelCommand | RefundCommand,
): Admission {
  switch (command.kind) {
    case 'capture':
      return admitCapture(payment, operations, command);
    case 'cancel':
      return admitCancel(payment, operations);
    case 'refund':
      return admitRefund(payment, command);
  }
}

function admitCapture(payment: Payment, operations: readonly Operation[], command: CaptureCommand): Admission {
  const refusal = refuseState(payment, operations, ['authorized'], 'captured');
  if (refusal && !isCapturedByNobody(payment, operations)) return refusal;
  const amount_minor = command.amount_minor ?? payment.amount_minor;
  return amount_minor <= payment.amount_minor
    ? { type: 'admitted', amount_minor }
    : exceeds(payment, payment.amount_minor, false);
}

/**
 * The money is taken, and no capture on record took it: it was done at the provider's own dashboard, or asked for by a
 * request that a database set back has forgotten. The provider says which: under the same provider key it answers as it
 * did then, and refuses any other.
 */
function isCapturedByNobody({ status, capture }: Payment, operations: readonly Operation[]): boolean {
  if (status !== 'succeeded' || capture !== 'manual') return false;
  return operations.every((operation) => operation.kind !== 'capture' || operation.status === 'failed');
}

function admitCancel(payment: Payment, operations: readonly Operation[]): Admission {
  const refusal = refuseState(payment, operations, ['authorized', 'requires_action'], 'canceled');
  return refusal ?? { type: 'admitted', amount_minor: 0n };
}

function admitRefund(payment: Payment, command: RefundCommand): Admission {
  if (payment.status !== 'succeeded') return invalidState(payment, 'refunded', payment.status === 'processing');
  const remaining = payment.amount_captured_minor - payment.refund_reserved_minor;
  const amount_minor = command.amount_minor ?? remaining;
  if (amount_minor > 0n && amount_minor <= remaining) return { type: 'admitted', amount_minor };
  // A pending refund may fail and free its amount.
  const isPending = payment.refund_reserved_minor > payment.amount_refunded_minor;
  return exceeds(payment, remaining > 0n ? remaining : 0n, isPending);
}

function refuseState(
  payment: Payment,
  operations: readonly Operation[],
  allowed: readonly Payment['status'][],
  done: string,
): Admission | undefined {
  const inFlight = operations.find((operation) => operation.kind !== 'refund' && operation.status === 'processing');
  if (inFlight) {
    const detail = `A ${inFlight.kind} of this payment is in flight. Try again when its outcome is known.`;
    const error = new OncepayError('operation_in_progress', detail, {
      members: { payment_id: payment.id, payment_status: payment.status },
    });
    return { type: 'refused', error, for_now: true };
  }
  if (allowed.includes(payment.status)) return undefined;
  return invalidState(payment, done, payment.status === 'processing' || payment.status === 'requires_action');
}

function invalidState(payment: Payment, done: string, for_now: boolean): Admission {
  const detail = `The payment is ${payment.status}; it can't be ${done}.`;
  const error = new OncepayError('invalid_payment_state', detail, {
    members: { payment_id: payment.id, payment_status: payment.status },
  });
  return { type: 'refused', error, for_now };
}

function exceeds(payment: Payment, remaining_minor: bigint, for_now: boolean): Admission {
  const remaining = formatAmount(remaining_minor, payment.currency);
  const detail = `Of this payment ${remaining} ${payment.currency} remain; the amount asked for is more, or nothing is left.`;
  const error = new OncepayError('amount_exceeds_remaining', detail, {
    members: { payment_id: payment.id, remaining, currency: payment.currency },
  });
  return { type: 'refused', error, for_now };
}
