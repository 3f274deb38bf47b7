import type { Answer } from '../contract/answer.js';
import { inTransaction } from '../database/transaction.js';
import type { ChargeCommand } from '../domain/command.js';
import type { Origin } from '../store/begin-charge.js';
import { beginItem, NO_ORIGIN } from './begin.js';
import { clockFrom } from './clock.js';
import { answerOf, answerOfNewOwner, conclude, concludeStraight, type StraightCharge } from './conclude.js';
import type { PaymentsContext } from './context.js';
import { pursue } from './pursue.js';
import { type Held, providerDeadline, resume } from './run.js';
import { beginOnExisting } from './second-guard.js';

const MAX_ROUNDS = 3;

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
  const item = beginItem(ctx, held, command, origin);
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const begun = await ctx.hot.begin.submit(item);
    if (begun.type === 'lease_lost') return answerOfNewOwner(ctx, held.lease, 'charge');
    if (begun.type === 'begun') {
      await ctx.atStep('begun', held.lease.operation_id);
      const clock = clockFrom(begun.payment.created_at);
      return runStraight(ctx, held, { lease: held.lease, clock, request_id: held.request_id, ...begun });
    }
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
        break;
    }
  }
  throw new Error('charge: what was in the way kept vanishing');
}

async function runStraight(ctx: PaymentsContext, held: Held, straight: StraightCharge): Promise<Answer> {
  const { payment, operation } = straight;
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
