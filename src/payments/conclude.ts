import type pg from 'pg';
import { type Answer, finalAnswer, locationOf, resourceBody, SUCCESS_STATUS } from '../contract/answer.js';
import { inTransaction } from '../database/transaction.js';
import { applyOutcome, type Outcome } from '../domain/apply-outcome.js';
import { type Cause, Change } from '../domain/change.js';
import { OncepayError } from '../domain/errors.js';
import type { Operation, Payment } from '../domain/payment.js';
import { isDecided } from '../domain/moves.js';
import { nextCheck, UNKNOWN_CHECKS_MAX } from '../domain/schedule.js';
import { lockAttempts, recordAttempts, scheduleCheck } from '../store/operations.js';
import { holdsLease, leaveOpen, readAnswer } from '../store/records.js';
import type { Lease } from '../store/reserve.js';
import { lockForChange, writeChange } from './change-payment.js';
import type { DatabaseClock } from './clock.js';
import type { PaymentsContext } from './context.js';
import { outboxRow } from './outbox-rows.js';
import type { Pursuit } from './pursue.js';

/** A charge on its straight way: begun and answered by one request, everything of it in hand. */
export interface StraightCharge {
  readonly lease: Lease;
  readonly payment: Payment;
  readonly operation: Operation;
  readonly clock: DatabaseClock;
  readonly request_id: string;
}

/**
 * Ends a charge in one batched statement, where it is as simple as nearly all are: one payment, one operation, one event,
 * nothing odd. Undefined: it is not, or somebody moved the payment meanwhile; nothing was written, and `conclude` decides.
 */
export async function concludeStraight(
  ctx: PaymentsContext,
  charge: StraightCharge,
  pursuit: Pursuit,
): Promise<Answer | undefined> {
  const { lease, payment, operation } = charge;
  const now = charge.clock.now();
  const change = new Change(payment, [operation], now, 'request');
  applyOutcome(change, operation.id, pursuit.outcome);
  const after = change.operation(operation.id);
  const [event] = change.events;
  const [attempt] = pursuit.attempts;
  const isSimple =
    change.events.length === 1 &&
    change.anomalies.length === 0 &&
    pursuit.attempts.length === 1 &&
    isDecided(after.status);
  if (!isSimple || !event || !attempt) return undefined;
  const answer = finalAnswer(change.payment, after, charge.request_id);
  const expires_at = new Date(now.getTime() + ctx.retention_ms);
  const settled = await ctx.hot.settle.submit({
    token: lease.token,
    version_read: payment.version,
    payment: change.payment,
    history: change.history[0] ?? null,
    operation: after,
    attempt,
    check_at: nextCheck(after, 0, now, { first_ms: ctx.timing.reconcile_interval_ms }),
    answer: { ...answer, expires_at },
    event: outboxRow(change.payment, after, event),
  });
  if (!settled) return undefined;
  const status = answer.http_status ?? SUCCESS_STATUS.charge;
  return {
    status,
    body: answer.body,
    location: locationOf('charge', status, payment.id, operation.id),
    expires_at,
    replayed: false,
  };
}

/** An operation that was pursued, by the request that holds its key's lease or by a job that holds none. */
export interface Concluded {
  readonly lease: Lease | null;
  readonly payment_id: string;
  readonly operation_id: string;
  readonly cause: Cause;
}

export interface Conclusion {
  readonly payment: Payment;
  readonly operation: Operation;
  /** The final answer that was stored; null: the operation goes on. */
  readonly final: { readonly body: string; readonly http_status: number | null } | null;
  readonly expires_at: Date;
}

/**
 * Writes what a pursuit learned, under the payment's lock: the operation's end with every waiting answer, or the next look.
 * A lease that was lost meanwhile means that somebody else decides: nothing is written, `lease_lost`.
 */
export async function conclude(
  ctx: PaymentsContext,
  run: Concluded,
  pursuit: Pursuit,
): Promise<Conclusion | 'lease_lost'> {
  return inTransaction(ctx.pool, async (tx) => {
    const change = await lockForChange(tx, run.payment_id, { operation_id: run.operation_id }, run.cause);
    if (!change) throw new Error(`payment ${run.payment_id} is gone`);
    const before = change.operation(run.operation_id);
    if (run.lease && !(await holdsLease(tx, run.lease))) {
      // That the call was made, and what it said, is true all the same.
      await recordAttempts(tx, run.operation_id, pursuit);
      return 'lease_lost';
    }
    applyOutcome(change, run.operation_id, await stillTrue(tx, run.operation_id, pursuit.outcome));
    const answers = await writeChange(ctx, tx, change);
    await recordAttempts(tx, run.operation_id, worthKeeping(pursuit, before, change.operation(run.operation_id)));
    const operation = change.operation(run.operation_id);
    // An operation that had its outcome before (a second look at `authorized`, say) is only looked at again later.
    const needs_review_at = reviewTime(operation, pursuit, change.now);
    const waiting = { ...operation, needs_review_at };
    if (operation.status === before.status) {
      const check_at = nextCheck(waiting, operation.checks, change.now, { first_ms: ctx.timing.reconcile_interval_ms });
      await scheduleCheck(tx, operation.id, check_at, needs_review_at);
    }
    if (run.lease && !isDecided(operation.status)) {
      await leaveOpen(tx, run.lease, {
        payment_id: run.payment_id,
        operation_id: run.operation_id,
        success_status: null,
      });
    }
    const final = answers.get(operation.id);
    const expires_at = final?.expires_at ?? new Date(change.now.getTime() + ctx.retention_ms);
    return { payment: change.payment, operation: waiting, final: final ?? null, expires_at };
  });
}

/**
 * "It never happened" rests on there having been one attempt. Two jobs can overlap on one operation where a claim ran out
 * under a slow round: what the count was before the call proves nothing, so it is looked at again with the row locked.
 */
async function stillTrue(tx: pg.PoolClient, operation_id: string, outcome: Outcome): Promise<Outcome> {
  if (outcome.type !== 'never_happened' || (await lockAttempts(tx, operation_id)) === 1) return outcome;
  return { type: 'unknown', reason: 'another_attempt_started' };
}

/** Looks that changed nothing would fill the timeline: of those only sendings are kept. */
function worthKeeping(
  pursuit: Pursuit,
  before: Operation,
  after: Operation,
): { attempts: Pursuit['attempts']; sent: number } {
  const attempts =
    after.status !== before.status ? pursuit.attempts : pursuit.attempts.filter((attempt) => attempt.action !== 'ask');
  return { attempts, sent: pursuit.sent };
}

function reviewTime(operation: Operation, pursuit: Pursuit, now: Date): Date | null {
  if (operation.needs_review_at !== null || operation.status !== 'processing') return operation.needs_review_at;
  return pursuit.needs_review || operation.checks >= UNKNOWN_CHECKS_MAX ? now : null;
}

/** The answer of a request whose operation was concluded: final where it ended, otherwise 202 and the resource as it is. */
export function answerOf({ payment, operation, final, expires_at }: Conclusion): Answer {
  const { body, http_status } = final ?? { body: resourceBody(payment, operation), http_status: 202 };
  const status = http_status ?? SUCCESS_STATUS[operation.kind];
  return {
    status,
    body,
    location: locationOf(operation.kind, status, payment.id, operation.id),
    expires_at,
    replayed: false,
  };
}

/**
 * After a lost lease: the answer that somebody else has written (a webhook that was faster, say), or the word that they are
 * still at it. No replay: this request asked first.
 */
export async function answerOfNewOwner(ctx: PaymentsContext, lease: Lease, kind: Operation['kind']): Promise<Answer> {
  const stored = await readAnswer(ctx.pool, lease.client_id, lease.key);
  if (!stored) {
    throw new OncepayError('idempotency_key_in_progress', 'Another request took this key over and is still at work.', {
      retry_after_s: 1,
    });
  }
  // Released after the lease was lost, then taken for something else.
  if (!stored.command_hash.equals(lease.command_hash)) {
    throw new OncepayError('idempotency_key_reused', 'This key stands for another command by now.');
  }
  const location = locationOf(kind, stored.http_status, stored.payment_id, stored.operation_id);
  return { status: stored.http_status, body: stored.body, location, expires_at: stored.expires_at, replayed: false };
}
