import { type Answer, finalAnswer, locationOf, SUCCESS_STATUS } from '../contract/answer.js';
import { inTransaction } from '../database/transaction.js';
import { isDecided } from '../domain/moves.js';
import type { OperationKind } from '../domain/payment.js';
import type { BeginChargeResult } from '../store/begin-charge.js';
import { lockDossier, readDossier } from '../store/payments.js';
import { holdsLease, storeAnswer } from '../store/records.js';
import type { Lease } from '../store/reserve.js';
import { type Deadline, deadlineIn } from './clock.js';
import { answerOf, answerOfNewOwner, conclude } from './conclude.js';
import type { PaymentsContext } from './context.js';
import { pursue } from './pursue.js';

/** A key's lease, held by the request (or consumer) that runs its command. */
export interface Held {
  readonly lease: Lease;
  /** It was somebody else's: something may be recorded already. */
  readonly taken_over: boolean;
  /** How the charge began, where the reservation began it in the same statement. */
  readonly begun?: BeginChargeResult | null;
  /** When the lease ends, by this process's monotonic clock; started before it was asked for. */
  readonly deadline: Deadline;
  readonly request_id: string;
}

/** An operation that is durable and waits to be pursued. */
export interface Pursuable {
  readonly payment_id: string;
  readonly operation_id: string;
  /** Its first attempt is counted, and nothing was sent yet. */
  readonly first: boolean;
}

/** What of a lease is left for the statements after the provider's answer, in milliseconds. */
const SETTLE_RESERVE_MS = 2_000;

/** The limit of all provider calls of a request together: queue + provider + settle stay below the lease. */
export function providerDeadline(ctx: PaymentsContext, held: Pick<Held, 'deadline'>): Deadline {
  const reserve_ms = Math.min(SETTLE_RESERVE_MS, ctx.timing.lease_ms / 10);
  return deadlineIn(Math.min(ctx.timing.provider_timeout_ms, held.deadline.left_ms() - reserve_ms));
}

/** Pursues an operation under its key's lease and answers: final where it ended, 202 where that is not known yet. */
export async function resume(
  ctx: PaymentsContext,
  held: Held,
  kind: OperationKind,
  target: Pursuable,
): Promise<Answer> {
  const dossier = await readDossier(ctx.pool, target.payment_id, { operation_id: target.operation_id });
  const operation = dossier?.operations.find((candidate) => candidate.id === target.operation_id);
  if (!dossier || !operation) throw new Error(`operation ${target.operation_id} is gone`);
  if (isDecided(operation.status)) return answerDecided(ctx, held, kind, target);
  const subject = { payment: dossier.payment, operations: dossier.operations, operation };
  const cause = held.taken_over ? 'recovery' : 'request';
  const pursuit = await pursue(ctx, subject, { first: target.first, deadline: providerDeadline(ctx, held), cause });
  await ctx.atStep('answered', operation.id);
  const conclusion = await conclude(
    ctx,
    { lease: held.lease, payment_id: target.payment_id, operation_id: operation.id, cause },
    pursuit,
  );
  await ctx.atStep('settled', operation.id);
  return conclusion === 'lease_lost' ? answerOfNewOwner(ctx, held.lease, kind) : answerOf(conclusion);
}

/** The outcome is recorded, and this key's answer is not: it is made from the rows as they are, and stored. */
export async function answerDecided(
  ctx: PaymentsContext,
  held: Pick<Held, 'lease' | 'request_id'>,
  kind: OperationKind,
  target: Pursuable,
): Promise<Answer> {
  const { lease, request_id } = held;
  const answer = await inTransaction(ctx.pool, async (tx): Promise<Answer | undefined> => {
    const dossier = await lockDossier(tx, target.payment_id, { operation_id: target.operation_id });
    const operation = dossier?.operations.find((candidate) => candidate.id === target.operation_id);
    if (!dossier || !operation) throw new Error(`operation ${target.operation_id} is gone`);
    if (!(await holdsLease(tx, lease))) return undefined;
    const { body, http_status } = finalAnswer(dossier.payment, operation, request_id);
    const status = http_status ?? SUCCESS_STATUS[kind];
    const expires_at = new Date(dossier.now.getTime() + ctx.retention_ms);
    await storeAnswer(tx, lease, {
      http_status: status,
      body,
      expires_at,
      payment_id: target.payment_id,
      operation_id: operation.id,
    });
    return {
      status,
      body,
      location: locationOf(kind, status, target.payment_id, operation.id),
      expires_at,
      replayed: false,
    };
  });
  return answer ?? answerOfNewOwner(ctx, lease, kind);
}
