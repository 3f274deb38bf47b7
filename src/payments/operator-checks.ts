import type pg from 'pg';
import type { Change } from '../domain/change.js';
import type { Operation } from '../domain/payment.js';
import { findByProviderPayment } from '../store/find-operation.js';
import { findByProviderRefund, type LockedOperation } from '../store/operator.js';
import type { PaymentsContext } from './context.js';

/** What an operator asked for can't be done; the message says why and what there is instead. Nothing has changed. */
export class OperatorRefusal extends Error {
  override readonly name = 'OperatorRefusal';
}

/** The provider's own id: whatever it looks like, it has no blanks. */
const PROVIDER_ID = /^[\x21-\x7e]{1,255}$/;

/** Whoever says "it did not happen" must be sure that it never will: no request of ours is still on its way. */
export function refuseTooEarly(ctx: PaymentsContext, { payment }: Change, operation: LockedOperation): void {
  // Nothing was ever sent, and under this lock nothing will be.
  if (operation.attempts_started === 0 || operation.first_attempt_age_ms === null) return;
  const provider = ctx.providers.get(payment.provider);
  if (!provider) {
    throw new OperatorRefusal(
      `The provider ${payment.provider} is not configured here (PROVIDERS), so that it is not known how long it remembers keys.`,
    );
  }
  const memory_ms = provider.keyMemory_ms;
  if (operation.first_attempt_age_ms < memory_ms) {
    throw new OperatorRefusal(
      `Too early for failed: ${payment.provider} remembers keys for ${hours(memory_ms)}, and until then the operation is ` +
        `still being sent. Its first attempt was ${hours(operation.first_attempt_age_ms)} ago. Use retry to have it asked about now.`,
    );
  }
  const isOpen = operation.attempts_finished < operation.attempts_started;
  if (isOpen && (operation.last_attempt_age_ms ?? 0) < memory_ms) {
    throw new OperatorRefusal(
      `Too early for failed: an attempt of ${hours(operation.last_attempt_age_ms ?? 0)} ago has no recorded end and may still ` +
        `be under way. ${payment.provider} remembers keys for ${hours(memory_ms)}.`,
    );
  }
}

/** Whether a success fits what is on record: its amount, and the provider's name for it. */
export async function refuseUnfit(
  tx: pg.PoolClient,
  { payment }: Change,
  operation: Operation,
  locked: LockedOperation,
  evidence: string,
): Promise<void> {
  if (locked.is_mismatch) {
    throw new OperatorRefusal(
      'The provider told of another amount or currency than was asked for (see its anomaly): that is never "paid". Give the ' +
        'money back at the provider, and resolve the operation as failed with that as evidence.',
    );
  }
  if (operation.kind !== 'charge' && operation.kind !== 'refund') return;
  if (!PROVIDER_ID.test(evidence)) {
    throw new OperatorRefusal(
      `Evidence of a ${operation.kind} that succeeded is the provider's id of it (and nothing else), such as it shows it.`,
    );
  }
  if (operation.kind === 'refund') return refuseOtherRefund(tx, operation, evidence);
  const known = operation.provider_payment_id;
  if (known !== null && known !== evidence) {
    throw new OperatorRefusal(`The provider has called this charge ${known} before; ${evidence} is another.`);
  }
  const other = await findByProviderPayment(tx, payment.provider, evidence);
  if (other && other.operation_id !== operation.id) {
    throw new OperatorRefusal(
      `${evidence} is the charge ${other.operation_id} of the payment ${other.payment_id} already.`,
    );
  }
}

async function refuseOtherRefund(tx: pg.PoolClient, operation: Operation, evidence: string): Promise<void> {
  const known = operation.provider_refund_id;
  if (known !== null && known !== evidence) {
    throw new OperatorRefusal(`The provider has called this refund ${known} before; ${evidence} is another.`);
  }
  const other = await findByProviderRefund(tx, operation.payment_id, evidence);
  if (other !== undefined && other !== operation.id)
    throw new OperatorRefusal(`${evidence} is the refund ${other} of this payment already.`);
}

function hours(duration_ms: number): string {
  const minutes = Math.floor(duration_ms / 60_000);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h`;
}
