import { newId } from '../domain/id.js';
import { deadlineIn } from '../payments/clock.js';
import type { PaymentsContext } from '../payments/context.js';
import { resume } from '../payments/run.js';
import { findOperation, takeOverExpired } from '../store/operations.js';
import { releaseKey } from '../store/records.js';

const BATCH = 20;

/**
 * Takes over the leases that their holders let run out. What was begun is pursued to its end; a reservation with nothing
 * begun is only released: a client that gave up must not be charged hours later.
 */
export async function recoverRound(ctx: PaymentsContext): Promise<boolean> {
  const deadline = deadlineIn(ctx.timing.lease_ms);
  const taken = await takeOverExpired(ctx.pool, BATCH, ctx.timing.lease_ms);
  await Promise.all(
    taken.map(async ({ kind, ...lease }) => {
      try {
        const operation = await findOperation(ctx.pool, lease.operation_id);
        if (operation) {
          ctx.metrics.countIdempotency('resumed');
          const held = { lease, taken_over: true, deadline, request_id: newId() };
          await resume(ctx, held, kind, { payment_id: operation.payment_id, operation_id: operation.id, first: false });
        } else if (await releaseKey(ctx.pool, lease)) {
          ctx.metrics.countIdempotency('released');
        }
      } catch (error) {
        // The lease runs out again, and the next round tries again.
        ctx.logger.warn(
          { err: error, operation_id: lease.operation_id },
          'an operation could not be recovered this time',
        );
      }
    }),
  );
  return taken.length === BATCH;
}
