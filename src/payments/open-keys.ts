import { type Answer, locationOf, resourceBody, finalAnswer } from '../contract/answer.js';
import { inTransaction } from '../database/transaction.js';
import { isDecided } from '../domain/moves.js';
import type { OperationKind } from '../domain/payment.js';
import { lockDossier } from '../store/payments.js';
import { answerWaiting, readAnswer } from '../store/records.js';
import type { PaymentsContext } from './context.js';

/** A key that was answered 202 and asks again. */
export interface OpenKey {
  readonly client_id: string;
  readonly key: string;
  readonly kind: OperationKind;
  readonly payment_id: string;
  readonly operation_id: string;
}

/**
 * Answers a key that waits for an outcome: 202 with the resource as it is now. Whoever ends an operation writes the
 * answers that wait for it; should one have been missed, it is written here, so that no key stays open for ever.
 */
export async function answerOpen(ctx: PaymentsContext, open: OpenKey, request_id: string): Promise<Answer> {
  return inTransaction(ctx.pool, async (tx): Promise<Answer> => {
    const { payment_id, operation_id, kind } = open;
    const dossier = await lockDossier(tx, payment_id, { operation_id });
    const operation = dossier?.operations.find((candidate) => candidate.id === operation_id);
    if (!dossier || !operation) throw new Error(`operation ${operation_id} of an open key is gone`);
    const expires_at = new Date(dossier.now.getTime() + ctx.retention_ms);
    if (isDecided(operation.status)) {
      const final = finalAnswer(dossier.payment, operation, request_id);
      await answerWaiting(tx, operation_id, { ...final, expires_at, answered_at: dossier.now });
    }
    const stored = await readAnswer(tx, open.client_id, open.key);
    if (stored) {
      const { http_status: status, body } = stored;
      return {
        status,
        body,
        location: locationOf(kind, status, payment_id, operation_id),
        expires_at: stored.expires_at,
        replayed: true,
      };
    }
    const body = resourceBody(dossier.payment, operation);
    return {
      status: 202,
      body,
      location: locationOf(kind, 202, payment_id, operation_id),
      expires_at,
      replayed: false,
    };
  });
}
