import type { ChargeCommand } from './command.js';
import type { Operation, Payment } from './payment.js';

/** What a charge meets where a payment of its name exists already (design, section 2, "Second guard"). */
export type SecondGuardVerdict =
  /** Another client's: it learns nothing of it. */
  | { readonly type: 'taken_by_another_client' }
  /** Its own client's, for another command. */
  | { readonly type: 'taken' }
  /** This very key once made an operation here, for another command. */
  | { readonly type: 'key_reused' }
  /** The same command: the payment as it is. */
  | { readonly type: 'exists' }
  /** The same command, and its outcome is not known yet: this key waits for it too. */
  | { readonly type: 'wait'; readonly operation_id: string }
  /** Declined before: its own client may pay again, as a new try. */
  | { readonly type: 'pay_again'; readonly try_number: number }
  /** Somebody else is paying again right now. */
  | { readonly type: 'busy' };

/** Judges under the payment's lock. `operations` are at least all charges of the payment. */
export function judgeSecondCharge(
  payment: Payment,
  operations: readonly Operation[],
  asked: { readonly client_id: string; readonly key_hash: Buffer; readonly command: ChargeCommand },
): SecondGuardVerdict {
  const { command, key_hash } = asked;
  if (payment.client_id !== asked.client_id) return { type: 'taken_by_another_client' };
  const charges = operations.filter((operation) => operation.kind === 'charge');
  const inFlight = charges.find((operation) => operation.status === 'processing');

  const own = operations.find((operation) => operation.key_hash?.equals(key_hash));
  if (own) {
    if (!own.command_hash?.equals(command.hash)) return { type: 'key_reused' };
    return own.status === 'processing' ? { type: 'wait', operation_id: own.id } : { type: 'exists' };
  }
  const samePurpose = isSamePurpose(payment, command);
  if (payment.status === 'failed' && samePurpose) {
    // Also a capture or cancel of an authorization that has expired meanwhile: one movement at a time.
    if (operations.some(({ kind, status }) => kind !== 'refund' && status === 'processing')) return { type: 'busy' };
    return { type: 'pay_again', try_number: Math.max(...charges.map((charge) => charge.try_number)) + 1 };
  }
  if (inFlight && inFlight.try_number > 1 && samePurpose) return { type: 'busy' };
  const sameCommand = [payment.command_hash, ...charges.map((charge) => charge.command_hash)].some((hash) =>
    hash?.equals(command.hash),
  );
  if (!sameCommand) return { type: 'taken' };
  return inFlight && payment.status === 'processing' ? { type: 'wait', operation_id: inFlight.id } : { type: 'exists' };
}

/** Paying again may bring another payment method, and nothing else that the money depends on. */
function isSamePurpose(payment: Payment, command: ChargeCommand): boolean {
  return (
    payment.amount_minor === command.amount_minor &&
    payment.currency === command.currency &&
    payment.customer_id === command.customer_id &&
    payment.provider === command.provider &&
    payment.capture === command.capture
  );
}
