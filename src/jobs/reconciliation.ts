import type { Outcome } from '../domain/apply-outcome.js';
import { deadlineIn } from '../payments/clock.js';
import { conclude } from '../payments/conclude.js';
import type { PaymentsContext } from '../payments/context.js';
import { askAbout, type Subject } from '../payments/provider-calls.js';
import { type Pursuit, pursue } from '../payments/pursue.js';
import { claimDue, type DueOperation } from '../store/operations.js';
import { readDossier } from '../store/payments.js';

const BATCH = 20;
/** A claim outlasts the round: provider calls within their limit, and the statements around them. */
const CLAIM_MARGIN_MS = 5_000;

/**
 * Asks about every operation that is not final at its provider and due: unknown outcomes, open actions, authorizations that
 * may expire, declined tries that are not closed. Several instances share the list.
 */
export async function reconcileRound(ctx: PaymentsContext): Promise<boolean> {
  const due = await claimDue(ctx.pool, BATCH, ctx.timing.provider_timeout_ms + CLAIM_MARGIN_MS);
  await Promise.all(
    due.map(async (operation) => {
      try {
        await reconcile(ctx, operation);
      } catch (error) {
        // The claim runs out, and a later round asks again.
        ctx.logger.warn({ err: error, operation_id: operation.id }, 'an operation could not be reconciled this time');
      }
    }),
  );
  return due.length === BATCH;
}

async function reconcile(ctx: PaymentsContext, due: DueOperation): Promise<void> {
  const dossier = await readDossier(ctx.pool, due.payment_id, { operation_id: due.id });
  const operation = dossier?.operations.find((candidate) => candidate.id === due.id);
  if (!dossier || !operation) return;
  const subject = { payment: dossier.payment, operations: dossier.operations, operation };
  const deadline = deadlineIn(ctx.timing.provider_timeout_ms);
  const pursuit =
    operation.status === 'processing'
      ? await pursue(ctx, subject, { first: false, deadline, cause: 'reconciliation' })
      : await look(ctx, subject);
  await conclude(
    ctx,
    { lease: null, payment_id: due.payment_id, operation_id: due.id, cause: 'reconciliation' },
    pursuit,
  );
}

/** An operation that has its outcome and may still change: it is asked about and never sent. */
async function look(ctx: PaymentsContext, subject: Subject): Promise<Pursuit> {
  const { result, attempt } = await askAbout(ctx, subject, ctx.timing.provider_timeout_ms);
  const told = result.type === 'value' && typeof result.value !== 'string' ? result.value : undefined;
  const outcome: Outcome = told ? { type: 'fact', fact: told } : { type: 'unknown', reason: attempt.outcome };
  return { outcome, attempts: [attempt], sent: 0, needs_review: false };
}
