import type Stripe from 'stripe';
import type { ChargeFact, Fact, RefundFact } from '../../domain/fact.js';
import { ProviderError, type RetrieveTarget } from '../provider.js';
import { type Deadline, startDeadline } from './client.js';
import { askingError, isMissing } from './errors.js';
import { refundFact } from './facts.js';
import { readable, unreadable } from './operations.js';
import { type RefundShape, readIntent, readRefund } from './shapes.js';

/** Refunds of one PaymentIntent that are looked through: 10 pages of 100. */
const MAX_REFUND_PAGES = 10;

/**
 * What became of an operation. By Stripe's own id where it is known. A charge without one is searched for by our
 * reference, and Search lags ("data is searchable in less than a minute … up to an hour behind during outages"): what
 * it does not find is `not_visible_yet`, never `not_found`. Refunds are listed by their PaymentIntent, which does not lag.
 */
export async function retrieve(
  stripe: Stripe,
  target: RetrieveTarget,
  timeout_ms: number,
): Promise<Fact | 'not_found' | 'not_visible_yet'> {
  const deadline = startDeadline(timeout_ms);
  try {
    if (target.kind === 'refund') return await retrieveRefund(stripe, target, deadline);
    const id = target.provider_payment_id ?? (await searchCharge(stripe, target.charge_reference, deadline));
    return id === undefined ? 'not_visible_yet' : await retrieveCharge(stripe, id, deadline);
  } catch (error) {
    throw isMissing(error) ? missingError() : askingError(error);
  }
}

async function retrieveCharge(stripe: Stripe, id: string, deadline: Deadline): Promise<ChargeFact> {
  return readable(await stripe.paymentIntents.retrieve(id, { expand: ['latest_charge'] }, asking(deadline)));
}

/** The PaymentIntent of a reference, by its id: its state is read anew, since what Search shows may be old as well. */
async function searchCharge(stripe: Stripe, reference: string, deadline: Deadline): Promise<string | undefined> {
  const query = `metadata['reference']:'${reference.replace(/['\\]/g, '\\$&')}'`;
  const found = await stripe.paymentIntents.search({ query, limit: 10 }, asking(deadline));
  const ids = found.data.flatMap((answer) => {
    const intent = readIntent(answer);
    return intent?.metadata?.reference === reference ? [{ id: intent.id, rank: RANK.get(intent.status) ?? 0 }] : [];
  });
  // One reference has one PaymentIntent while Stripe remembers the key. Should there be two, the one with money counts.
  ids.sort((a, b) => b.rank - a.rank);
  return ids[0]?.id;
}

const RANK: ReadonlyMap<string, number> = new Map([
  ['succeeded', 4],
  ['requires_capture', 3],
  ['processing', 2],
  ['requires_action', 1],
]);

async function retrieveRefund(
  stripe: Stripe,
  target: RetrieveTarget,
  deadline: Deadline,
): Promise<RefundFact | 'not_found' | 'not_visible_yet'> {
  if (target.provider_refund_id !== null) {
    const answer = await stripe.refunds.retrieve(target.provider_refund_id, {}, asking(deadline));
    return refundOf(readRefund(answer), target.provider_payment_id);
  }
  const payment_intent = target.provider_payment_id ?? (await searchCharge(stripe, target.charge_reference, deadline));
  if (payment_intent === undefined) return 'not_visible_yet';
  let starting_after: string | undefined;
  for (let page = 0; page < MAX_REFUND_PAGES; page += 1) {
    const params = { payment_intent, limit: 100, ...(starting_after ? { starting_after } : {}) };
    const list = await stripe.refunds.list(params, asking(deadline));
    const refund = list.data.map(readRefund).find((entry) => entry?.metadata?.reference === target.reference);
    if (refund) return refundOf(refund, payment_intent);
    starting_after = list.data.at(-1)?.id;
    if (!list.has_more || !starting_after) return 'not_found';
  }
  return 'not_visible_yet';
}

function refundOf(refund: RefundShape | undefined, payment_intent: string | null): RefundFact {
  const fact = refund && refundFact(refund, payment_intent);
  if (!fact) throw unreadable();
  return fact;
}

/**
 * Stripe gave us this id, and does not know it: the key is of another account or mode than the one that the operation
 * ran with. "Not found" would invite sending it again, to that other account.
 */
function missingError(): ProviderError {
  return new ProviderError(
    'unknown',
    'other_account',
    'Stripe does not know an id that it gave: is the key of another account?',
  );
}

function asking(deadline: Deadline): Stripe.RequestOptions {
  return { timeout: deadline.left_ms() };
}
