import { OncepayError } from '../domain/errors.js';
import type { Operation, OperationKind, Payment } from '../domain/payment.js';
import { PROBLEMS, problemBody } from './problems.js';
import { paymentView, refundView } from './views.js';

/**
 * What a caller is answered with. The body is serialised once: the same text is stored and sent, so that nothing after
 * the commit can turn it into something else.
 */
export interface Answer {
  readonly status: number;
  readonly body: string;
  readonly location: string | null;
  /** Until when the key stands for this answer; null: the key was never touched. */
  readonly expires_at: Date | null;
  readonly replayed: boolean;
}

/** The status of success, by kind: 201 makes a resource, 200 changes one. */
export const SUCCESS_STATUS: Readonly<Record<OperationKind, number>> = {
  charge: 201,
  capture: 200,
  cancel: 200,
  refund: 201,
};

/** The resource that an operation of this kind makes or changes, as its path. */
export function resourcePath(kind: OperationKind, payment_id: string, operation_id: string): string {
  return kind === 'refund' ? `/refunds/${operation_id}` : `/payments/${payment_id}`;
}

/** `Location` goes with whatever names a resource of its own: a charge's payment, a refund. */
export function locationOf(
  kind: OperationKind,
  status: number,
  payment_id: string,
  operation_id: string,
): string | null {
  return status < 300 && (kind === 'charge' || kind === 'refund') ? resourcePath(kind, payment_id, operation_id) : null;
}

export function paymentBody(payment: Payment): string {
  return JSON.stringify(paymentView(payment));
}

/** The resource of an operation as it is now, as JSON text. */
export function resourceBody(payment: Payment, operation: Operation): string {
  return operation.kind === 'refund' ? JSON.stringify(refundView(payment, operation)) : paymentBody(payment);
}

/**
 * The final answer to whoever asked for an operation that has ended. Pure: made from the rows as they are being written.
 * `http_status` null: success as the key's record calls it. A capture or cancel that the provider refused is a problem,
 * since the payment that it left as it was would read like a success.
 */
export function finalAnswer(
  payment: Payment,
  operation: Operation,
  request_id: string,
): { readonly body: string; readonly http_status: number | null } {
  const refused = operation.status === 'failed' && (operation.kind === 'capture' || operation.kind === 'cancel');
  if (!refused) return { body: resourceBody(payment, operation), http_status: null };
  const reason = operation.failure?.message ?? 'The provider refused it.';
  const error = new OncepayError('invalid_payment_state', `The ${operation.kind} did not happen: ${reason}`, {
    members: { payment_status: payment.status, failure_code: operation.failure?.code ?? 'provider_rejected' },
  });
  return problemAnswer(error, request_id);
}

/** A refusal as body and status. */
export function problemAnswer(
  error: OncepayError,
  request_id: string,
): { readonly body: string; readonly http_status: number } {
  return { body: JSON.stringify(problemBody(error, request_id)), http_status: PROBLEMS[error.code].status };
}
