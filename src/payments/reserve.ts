import type { Command } from '../domain/command.js';
import type { NewChargeResult } from '../store/reserve-and-begin.js';
import type { ReserveItem } from '../store/reserve.js';
import { beginItem, NO_ORIGIN } from './begin.js';
import type { PaymentsContext } from './context.js';

/**
 * How a request reserves its key, as often as it has to ask. A charge is begun in the same statement where its payment is
 * new (docs/adr/0060): one commit less between the request and the provider. Everything else is begun under the payment's
 * lock, afterwards.
 * @throws QueueFull
 */
export function reservation(ctx: PaymentsContext, item: ReserveItem, command: Command): () => Promise<NewChargeResult> {
  if (command.kind !== 'charge') return async () => ({ reserved: await ctx.hot.reserve.submit(item), begun: null });
  const charge = beginItem(ctx, { lease: item }, command, NO_ORIGIN);
  return () => ctx.hot.reserveAndBegin.submit(charge);
}
