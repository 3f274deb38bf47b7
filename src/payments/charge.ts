import type { Answer } from '../contract/answer.js';
import { inTransaction } from '../database/transaction.js';
import type { ChargeCommand } from '../domain/command.js';
import type { BeginChargeResult, Origin } from '../store/begin-charge.js';
import { beginItem, NO_ORIGIN } from './begin.js';
import { clockFrom } from './clock.js';
import { answerOf, answerOfNewOwner, conclude, concludeStraight } from './conclude.js';
import type { PaymentsContext } from './context.js';
import { pursue } from './pursue.js';
import { type Held, providerDeadline, resume } from './run.js';
import { beginOnExisting } from './second-guard.js';

const MAX_ROUNDS = 3;

type BegunCharge = Extract<BeginChargeResult, { type: 'begun' }>;

/**
 * Runs a charge under a lease, or resumes it from what is recorded: begin, call, settle. The one use case behind
 * `POST /payments` and `ChargePayment.v1`.
 * @throws OncepayError `operation_in_progress`, `idempotency_key_in_progress`: refused for the moment, nothing stored
 */
export async function charge(
  ctx: PaymentsContext,
  held: Held,
  command: ChargeCommand,
  origin: Origin = NO_ORIGIN,
): Promise<Answer> {
  if (held.begun?.type === 'begun') return runStraight(ctx, held, held.begun);
  const item = beginItem(ctx, held, command, origin);
  let begun = held.begun ?? (await ctx.hot.begin.submit(item));
  for (let round = 1; ; round += 1) {
    if (begun.type === 'lease_lost') return answerOfNewOwner(ctx, held.lease, 'charge');
    if (begun.type === 'begun') return runStraight(ctx, held, begun);
    const existing = await inTransaction(ctx.pool, (tx) => beginOnExisting(ctx, tx, item, held.request_id));
    switch (existing.type) {
      case 'answer':
        return existing.answer;
      case 'refused':
        throw existing.error;
      case 'lease_lost':
        return answerOfNewOwner(ctx, held.lease, 'charge');
      case 'pursue':
        if (existing.first) await ctx.atStep('begun', held.lease.operation_id);
        return resume(ctx, held, 'charge', existing);
      case 'vanished':
        if (round === MAX_ROUNDS) throw new Error('charge: what was in the way kept vanishing');
        begun = await ctx.hot.begin.submit(item);
    }
  }
}

/** The straight way of a charge: begun by this very request, so that everything of it is in hand. */
async function runStraight(ctx: PaymentsContext, held: Held, { payment, operation }: BegunCharge): Promise<Answer> {
  await ctx.atStep('begun', operation.id);
  const clock = clockFrom(payment.created_at);
  const straight = { lease: held.lease, payment, operation, clock, request_id: held.request_id };
  const subject = { payment, operation, operations: [operation] };
  const pursuit = await pursue(ctx, subject, { first: true, deadline: providerDeadline(ctx, held), cause: 'request' });
  await ctx.atStep('answered', operation.id);
  const answer = await concludeStraight(ctx, straight, pursuit);
  if (answer) {
    await ctx.atStep('settled', operation.id);
    return answer;
  }
  const run = { lease: held.lease, payment_id: payment.id, operation_id: operation.id, cause: 'request' } as const;
  const conclusion = await conclude(ctx, run, pursuit);
  await ctx.atStep('settled', operation.id);
  return conclusion === 'lease_lost' ? answerOfNewOwner(ctx, held.lease, 'charge') : answerOf(conclusion);
}
