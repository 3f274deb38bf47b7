import { setTimeout as delay } from 'node:timers/promises';
import type { Outcome } from '../domain/apply-outcome.js';
import type { ChargeFact, Fact } from '../domain/fact.js';
import type { Failure, Operation } from '../domain/payment.js';
import type { ProviderError } from '../providers/provider.js';
import { startAttempt } from '../store/operations.js';
import type { AttemptRecord } from '../store/settle.js';
import { changePayment } from './change-payment.js';
import type { Deadline } from './clock.js';
import type { PaymentsContext } from './context.js';
import { askAbout, closeTry, providerOf, sendOperation, type Subject } from './provider-calls.js';
import type { Cause } from '../domain/change.js';

/** What a pursuit learned, and the attempts it made for the timeline. */
export interface Pursuit {
  readonly outcome: Outcome;
  readonly attempts: readonly AttemptRecord[];
  /** How many of them were sendings, which are counted at their start and their end. */
  readonly sent: number;
  /** Asked in vain past the provider's memory of keys: only an operator can go on. */
  readonly needs_review: boolean;
}

/** How often one request, or one round of a job, sends: a provider that is busy for a moment is worth a second try. */
const MAX_SENDS = 3;
const PAUSE_MS = 200;
/** Less is no time for a call. */
const MIN_CALL_MS = 20;
const ONE_HOUR_MS = 60 * 60_000;

/**
 * Brings an operation without outcome to its end, or as far as the time goes. `first`: its first attempt is counted and
 * nothing was sent, so that there is nothing to ask about yet. Otherwise the provider is asked first; what it has never
 * heard of is sent again under the same provider key, which is safe while the provider remembers keys, and past that
 * only asked about (design, section 3).
 */
export async function pursue(
  ctx: PaymentsContext,
  subject: Subject,
  options: { first: boolean; deadline: Deadline; cause: Cause },
): Promise<Pursuit> {
  const log = new AttemptLog();
  let { operation } = subject;
  let counted = options.first;
  let outcome: Outcome = { type: 'unknown', reason: 'no_time_left' };
  while (log.sent < MAX_SENDS) {
    if (!counted && operation.attempts_started > 0) {
      const answer = await ask(ctx, { ...subject, operation }, options.deadline, log);
      if (answer.type === 'outcome') return log.end(answer.outcome);
      if (answer.needs_review) return log.end({ type: 'unknown', reason: 'past_key_memory' }, true);
      if (!answer.may_send) return log.end({ type: 'unknown', reason: 'not_visible_yet' });
    }
    if (options.deadline.left_ms() < MIN_CALL_MS) break;
    const blocked = await closeEarlierTries(ctx, { ...subject, operation }, options, log);
    if (blocked) return log.end(blocked);
    if (!counted) {
      const started = await startAttempt(ctx.pool, operation.id);
      if (!started) return log.end({ type: 'unknown', reason: 'ended_meanwhile' });
      operation = {
        ...operation,
        attempts_started: started.attempts_started,
        first_attempt_at: started.first_attempt_at,
      };
    }
    outcome = await send(ctx, { ...subject, operation }, options.deadline, log);
    if (outcome.type !== 'unknown' || log.sent >= MAX_SENDS || options.deadline.left_ms() < 3 * PAUSE_MS)
      return log.end(outcome);
    counted = false;
    await delay(PAUSE_MS * log.sent);
  }
  return log.end(outcome);
}

class AttemptLog {
  sent = 0;
  readonly attempts: AttemptRecord[] = [];
  add(attempt: AttemptRecord): void {
    if (attempt.action === 'send') this.sent += 1;
    this.attempts.push(attempt);
  }
  end(outcome: Outcome, needs_review = false): Pursuit {
    return { outcome, attempts: this.attempts, sent: this.sent, needs_review };
  }
}

async function send(ctx: PaymentsContext, subject: Subject, deadline: Deadline, log: AttemptLog): Promise<Outcome> {
  const { operation } = subject;
  ctx.metrics.countAttempt(operation.kind, 'started');
  const { result, attempt } = await sendOperation(ctx, subject, callTime(ctx, deadline));
  ctx.metrics.countAttempt(operation.kind, 'finished');
  log.add(attempt);
  if (result.type === 'value') return { type: 'fact', fact: result.value };
  return outcomeOfError(result.error, operation);
}

/** Not sent and refused end the operation only if this was the only attempt ever started: an earlier one may be under way. */
function outcomeOfError(error: ProviderError, operation: Operation): Outcome {
  if (error.kind === 'unknown' || operation.attempts_started !== 1) return { type: 'unknown', reason: error.reason };
  return { type: 'never_happened', failure: error.failure ?? failureOf(error) };
}

function failureOf(error: ProviderError): Failure {
  if (error.kind === 'refused') return { code: 'provider_rejected', message: 'The provider refused the request.' };
  return { code: 'processing_error', message: 'The provider could not be reached; nothing was sent.' };
}

type Asked =
  | { readonly type: 'outcome'; readonly outcome: Outcome }
  | { readonly type: 'nothing'; readonly may_send: boolean; readonly needs_review: boolean };

async function ask(ctx: PaymentsContext, subject: Subject, deadline: Deadline, log: AttemptLog): Promise<Asked> {
  const { result, attempt } = await askAbout(ctx, subject, callTime(ctx, deadline));
  log.add(attempt);
  if (result.type === 'error') return { type: 'outcome', outcome: { type: 'unknown', reason: result.error.reason } };
  const told = result.value;
  if (typeof told !== 'string' && tellsOf(subject.operation, told))
    return { type: 'outcome', outcome: { type: 'fact', fact: told } };
  const remembered = await isKeyRemembered(ctx, subject);
  // A look-up that lags proves nothing: within the key's memory the same request is the question, after it only time helps.
  return { type: 'nothing', may_send: remembered, needs_review: !remembered && told !== 'not_visible_yet' };
}

/** Whether a look-up's fact is this operation's outcome: a charge still `authorized` says that a capture has not happened. */
function tellsOf(operation: Operation, fact: Fact): boolean {
  if (operation.kind === 'capture') return fact.status !== 'authorized';
  if (operation.kind === 'cancel') return fact.status === 'canceled' || fact.status === 'succeeded';
  return true;
}

/** Leaves a margin: neither clock is the provider's. */
async function isKeyRemembered(ctx: PaymentsContext, { payment, operation }: Subject): Promise<boolean> {
  if (operation.first_attempt_at === null) return true;
  const memory_ms = providerOf(ctx, payment.provider).keyMemory_ms;
  const margin_ms = Math.min(ONE_HOUR_MS, memory_ms / 10);
  const { rows } = await ctx.pool.query<{ remembered: boolean }>({
    name: 'key_remembered',
    text: `select clock_timestamp() < $1::timestamptz + $2::bigint * interval '1 millisecond' as remembered`,
    values: [operation.first_attempt_at, Math.floor(memory_ms - margin_ms)],
  });
  return rows[0]?.remembered ?? false;
}

/**
 * Before every sending of a new try, resumed ones too, those before it are known to be closed. Undefined: they are.
 * Otherwise what to end with: one of them has the money, or it can't be known now.
 */
async function closeEarlierTries(
  ctx: PaymentsContext,
  { payment, operations, operation }: Subject,
  { deadline, cause }: { deadline: Deadline; cause: Cause },
  log: AttemptLog,
): Promise<Outcome | undefined> {
  if (operation.kind !== 'charge' || operation.try_number === 1) return undefined;
  const earlier = operations.filter(
    (o) => o.kind === 'charge' && o.try_number < operation.try_number && o.status !== 'void',
  );
  for (const declined of earlier) {
    // Before it counts that it was taken for closed: what a provider tells of money is never too late.
    if (isTaken(declined.status)) return { type: 'previous_took', previous_id: declined.id, fact: null };
    if (declined.closed_at !== null) continue;
    const fact = await closedFact(ctx, { payment, operations, operation: declined }, deadline, log);
    if (!fact) return { type: 'unknown', reason: 'earlier_try_not_closed' };
    if (isTaken(fact.status)) return { type: 'previous_took', previous_id: declined.id, fact };
    if (fact.status !== 'canceled' && !(fact.status === 'failed' && fact.closed))
      return { type: 'unknown', reason: 'earlier_try_not_closed' };
    await changePayment(ctx, { payment_id: payment.id, cause, fact: { operation_id: declined.id, fact } });
  }
  return undefined;
}

function isTaken(status: Operation['status'] | ChargeFact['status']): boolean {
  return status === 'succeeded' || status === 'authorized';
}

async function closedFact(
  ctx: PaymentsContext,
  subject: Subject,
  deadline: Deadline,
  log: AttemptLog,
): Promise<ChargeFact | undefined> {
  if (subject.operation.provider_payment_id !== null) {
    const closed = await closeTry(ctx, subject.payment, subject.operation, callTime(ctx, deadline));
    log.add(closed.attempt);
    if (closed.result.type === 'value') return closed.result.value;
  }
  // The provider would not cancel it, or we have no name for it: what is it now?
  const asked = await askAbout(ctx, subject, callTime(ctx, deadline));
  log.add(asked.attempt);
  const told = asked.result.type === 'value' ? asked.result.value : undefined;
  return told && typeof told !== 'string' && told.type === 'charge' ? told : undefined;
}

function callTime(ctx: PaymentsContext, deadline: Deadline): number {
  return Math.max(MIN_CALL_MS, Math.min(ctx.timing.provider_timeout_ms, deadline.left_ms()));
}
