import type Stripe from 'stripe';
import type { ProviderEvent } from '../provider.js';
import { startDeadline } from './client.js';
import { askingError, isMissing } from './errors.js';
import { ourMetadata, releasedOf } from './facts.js';
import { type ChargeShape, readCharge, readRefund, type RefundShape } from './shapes.js';

/** Stripe makes the "refund" of a released remainder together with the capture: within seconds, not minutes. */
const SAME_MOMENT_S = 5;

/**
 * A refund made at Stripe's dashboard carries none of our metadata and does not say whose charge it is on. Asks Stripe
 * for both, and takes the fact away where the "refund" is only money that was never taken: an authorization that was
 * cancelled or expired, or the remainder of a partial capture.
 * @throws ProviderError; the notification must then be sent again
 */
export async function completeRefundEvent(
  stripe: Stripe,
  event: ProviderEvent,
  timeout_ms: number,
): Promise<ProviderEvent> {
  if (event.fact?.type !== 'refund' || event.refund_metadata || event.charge_metadata) return event;
  const deadline = startDeadline(timeout_ms);
  try {
    const refund = readRefund(
      await stripe.refunds.retrieve(
        event.fact.provider_refund_id,
        { expand: ['charge.balance_transaction'] },
        { timeout: deadline.left_ms() },
      ),
    );
    const charge = refund && readCharge(refund.charge);
    if (!charge) return { ...event, fact: null };
    const charge_metadata = ourMetadata(charge.metadata);
    return { ...event, charge_metadata, fact: isReleased(refund, charge) ? null : event.fact };
  } catch (error) {
    // Not of this account (any more): not ours.
    if (isMissing(error)) return { ...event, fact: null };
    throw askingError(error);
  }
}

function isReleased(refund: RefundShape, charge: ChargeShape): boolean {
  if (charge.captured !== true) return true;
  if (refund.amount !== releasedOf(charge)) return false;
  const captured_at_s = balanceTime(charge.balance_transaction);
  if (captured_at_s === undefined || typeof refund.created !== 'number') return false;
  return Math.abs(refund.created - captured_at_s) <= SAME_MOMENT_S;
}

/** When the charge's money was booked: at its capture. */
function balanceTime(transaction: unknown): number | undefined {
  const created =
    transaction !== null && typeof transaction === 'object'
      ? (transaction as { created?: unknown }).created
      : undefined;
  return typeof created === 'number' ? created : undefined;
}
