import { checkRefunded } from './apply-refund-fact.js';
import type { Change } from './change.js';
import type { ChargeFact } from './fact.js';
import type { Failure, Operation } from './payment.js';

const CANCELED_AT_PROVIDER: Failure = {
  code: 'provider_rejected',
  message: 'The payment was canceled at the provider.',
};
const AUTHORIZATION_EXPIRED: Failure = {
  code: 'authorization_expired',
  message: 'The authorization ended before it was captured.',
};
const NOT_CAPTURABLE: Failure = {
  code: 'provider_rejected',
  message: 'The authorization ended before it was captured.',
};
const NOT_CANCELABLE: Failure = { code: 'provider_rejected', message: 'The money had already been taken.' };

/**
 * Applies what a provider says of one charge to the operation it names; the payment follows where it goes by that
 * operation. A fact is a snapshot: told twice or late it changes nothing more. One about a superseded try never
 * fails or cancels the payment, and money taken twice is always an anomaly (design, section 2).
 */
export function applyChargeFact(change: Change, operation_id: string, fact: ChargeFact): void {
  const known = change.operation(operation_id);
  const isAnother = known.provider_payment_id !== null && known.provider_payment_id !== fact.provider_payment_id;
  // Made under the same reference by a provider that forgot our key. Only that it took money says something here.
  if (isAnother && fact.status !== 'authorized' && fact.status !== 'succeeded') return undefined;
  if (known.provider_payment_id === null)
    change.updateOperation(operation_id, { provider_payment_id: fact.provider_payment_id });
  if (
    !isAnother &&
    isLeading(change, known) &&
    change.payment.provider_payment_id !== fact.provider_payment_id &&
    !isTaken(change)
  ) {
    change.updatePayment({ provider_payment_id: fact.provider_payment_id });
  }
  switch (fact.status) {
    case 'processing':
      return applyProcessing(change, known);
    case 'requires_action':
      return applyRequiresAction(change, known, fact);
    case 'authorized':
    case 'succeeded':
      return fits(change, known, fact) ? applyTaken(change, known, fact) : undefined;
    case 'failed':
      return applyFailed(change, known, fact);
    case 'canceled':
      return applyCanceled(change, known);
  }
}

/** The latest try that counts; a void one was never sent. */
export function currentCharge(operations: readonly Operation[]): Operation | undefined {
  let current: Operation | undefined;
  for (const operation of operations) {
    if (operation.kind !== 'charge' || operation.status === 'void') continue;
    if (!current || operation.try_number > current.try_number) current = operation;
  }
  return current;
}

/** Whether the payment goes by this charge: the one that holds or has its money, where there is one, else the latest try. */
function isLeading(change: Change, operation: Operation): boolean {
  const holders = change.operations.filter(holdsMoney);
  const own = holders.find((holder) => holder.provider_payment_id === change.payment.provider_payment_id);
  return (own ?? holders[0] ?? currentCharge(change.operations))?.id === operation.id;
}

function holdsMoney({ kind, status }: Operation): boolean {
  return kind === 'charge' && (status === 'succeeded' || status === 'authorized');
}

function isTaken(change: Change): boolean {
  return change.payment.status === 'succeeded' || change.payment.status === 'authorized';
}

function pending(change: Change, kind: 'capture' | 'cancel'): Operation | undefined {
  return change.operations.find((operation) => operation.kind === kind && operation.status === 'processing');
}

/** Ends the capture or cancel that a charge's end tells of, where an operator had given it up: never silently. */
function reviveGivenUp(change: Change, kind: 'capture' | 'cancel'): void {
  const givenUp = change.operations.filter((o) => o.kind === kind && o.status === 'failed' && o.resolved_by !== null);
  const latest = givenUp.at(-1);
  if (!latest || !change.moveOperation(latest.id, 'succeeded', { failure: null })) return;
  change.raise('late_success', latest.id, { resolved_by: latest.resolved_by ?? '' });
}

function applyProcessing(change: Change, operation: Operation): void {
  // The customer has acted and the provider works on it. A cancel in flight keeps its place: one movement at a time.
  if (operation.status !== 'requires_action' || pending(change, 'cancel')) return;
  if (!isLeading(change, operation) || change.payment.status !== 'requires_action') return;
  change.moveOperation(operation.id, 'processing');
  change.movePayment('processing', operation.id, { next_action: null });
}

function applyRequiresAction(change: Change, operation: Operation, fact: ChargeFact): void {
  if (operation.status !== 'processing') return;
  change.moveOperation(operation.id, 'requires_action');
  if (isLeading(change, operation) && change.payment.status === 'processing') {
    change.movePayment('requires_action', operation.id, { next_action: fact.next_action });
  }
}

/** Another currency or less than asked is never "paid": it stays as it is, for an operator to look at. */
function fits(change: Change, operation: Operation, fact: ChargeFact): boolean {
  const asked = {
    asked: `${operation.amount_minor} ${change.payment.currency}`,
    told: `${fact.amount_minor} ${fact.currency}`,
  };
  if (fact.currency !== change.payment.currency) {
    change.raise('currency_mismatch', operation.id, asked);
    change.updateOperation(operation.id, { needs_review_at: operation.needs_review_at ?? change.now });
    return false;
  }
  const taken =
    change.payment.capture === 'automatic' && fact.status === 'succeeded'
      ? fact.amount_captured_minor
      : fact.amount_minor;
  if (taken < operation.amount_minor) {
    change.raise('amount_mismatch', operation.id, { ...asked, taken: String(taken) });
    change.updateOperation(operation.id, { needs_review_at: operation.needs_review_at ?? change.now });
    return false;
  }
  return true;
}

/** The provider holds (`authorized`) or has (`succeeded`) the money. */
function applyTaken(change: Change, operation: Operation, fact: ChargeFact): void {
  const status = fact.status === 'succeeded' ? 'succeeded' : 'authorized';
  // An older event: what was canceled or has expired holds no money any more. That money was *taken* is never ignored.
  if (status === 'authorized' && isOver(operation)) return;
  // News of the charge whose money the payment has, its capture for instance, is not about the one that came beside it.
  const isOwn = isTaken(change) && operation.provider_payment_id === change.payment.provider_payment_id;
  const other = isOwn ? undefined : change.operations.find((o) => o.id !== operation.id && holdsMoney(o));
  const givenUpBy = operation.status === 'failed' ? operation.resolved_by : null;
  const wasTaken = operation.status === 'succeeded' || operation.status === 'authorized';
  if (
    wasTaken &&
    operation.provider_payment_id !== null &&
    operation.provider_payment_id !== fact.provider_payment_id
  ) {
    // The provider forgot our key and took the money again under the same reference.
    change.raise('paid_twice', operation.id, { other_provider_payment_id: fact.provider_payment_id });
    return;
  }
  const { provider_payment_id } = fact;
  const moved = change.moveOperation(operation.id, status, {
    provider_payment_id,
    failure: null,
    needs_review_at: null,
  });
  if (moved && fact.amount_minor > operation.amount_minor) {
    change.raise('amount_mismatch', operation.id, {
      asked: String(operation.amount_minor),
      told: String(fact.amount_minor),
    });
  }
  if (moved && givenUpBy !== null) change.raise('late_success', operation.id, { resolved_by: givenUpBy });
  if (other) {
    if (moved) change.raise('paid_twice', operation.id, { other_operation_id: other.id });
    return;
  }
  if (moved && change.payment.status === 'canceled') change.raise('paid_after_cancel', operation.id);
  if (status === 'succeeded') captured(change, operation, fact, moved);
  change.movePayment(status, operation.id, {
    failure: null,
    next_action: null,
    provider_payment_id,
  });
}

/** An authorization that the provider ended does not come back. One that an operator gave up may. */
function isOver({ status, closed_at, failure, resolved_by }: Operation): boolean {
  if (status !== 'failed' || resolved_by !== null) return false;
  return closed_at !== null || failure?.code === AUTHORIZATION_EXPIRED.code;
}

/** What was captured: by the charge itself, by our capture, or at the provider's own dashboard. */
function captured(change: Change, operation: Operation, fact: ChargeFact, isNews: boolean): void {
  const capture = pending(change, 'capture');
  const asked = capture?.amount_minor ?? operation.amount_minor;
  if (fact.amount_captured_minor > asked && fact.amount_captured_minor !== change.payment.amount_captured_minor) {
    change.raise('captured_too_much', capture?.id ?? operation.id, {
      asked: String(asked),
      told: String(fact.amount_captured_minor),
    });
  } else if (capture && fact.amount_captured_minor < asked) {
    change.raise('amount_mismatch', capture.id, { asked: String(asked), told: String(fact.amount_captured_minor) });
  }
  if (capture) change.moveOperation(capture.id, 'succeeded', { provider_payment_id: fact.provider_payment_id });
  else if (isNews) reviveGivenUp(change, 'capture');
  const cancel = pending(change, 'cancel');
  if (cancel) change.moveOperation(cancel.id, 'failed', { failure: NOT_CANCELABLE });
  // Totals only grow: an older event must not take back what a later one told.
  if (fact.amount_captured_minor > change.payment.amount_captured_minor) {
    change.updatePayment({ amount_captured_minor: fact.amount_captured_minor });
  }
  if (isNews) checkRefunded(change, operation.id);
}

function applyFailed(change: Change, operation: Operation, fact: ChargeFact): void {
  if (operation.status === 'succeeded' || operation.status === 'void') return;
  // A decline, heard of late, of what was authorized since: the end of an authorization is told in other words (ChargeFact).
  if (operation.status === 'authorized' && isDecline(fact)) return;
  const failure = operation.status === 'authorized' ? AUTHORIZATION_EXPIRED : (fact.failure ?? CANCELED_AT_PROVIDER);
  // An authorization that has ended does not come back.
  endCharge(change, operation, failure, fact.closed || operation.status === 'authorized');
}

function isDecline({ closed, failure }: ChargeFact): boolean {
  return !closed && failure !== null && failure.code !== AUTHORIZATION_EXPIRED.code;
}

function applyCanceled(change: Change, operation: Operation): void {
  // A superseded try that is closed, by us before paying again for instance, says nothing of the next one's cancel.
  const cancel = isLeading(change, operation) ? pending(change, 'cancel') : undefined;
  if (cancel) change.moveOperation(cancel.id, 'succeeded');
  else if (operation.status === 'authorized' || operation.status === 'requires_action') reviveGivenUp(change, 'cancel');
  if (operation.status === 'succeeded' || operation.status === 'void') return;
  const asked = change.operations.some((o) => o.kind === 'cancel' && o.status === 'succeeded');
  const wasOpen = change.payment.status === 'authorized' || change.payment.status === 'requires_action';
  if (asked && wasOpen && isLeading(change, operation)) {
    change.movePayment('canceled', operation.id, { next_action: null });
    change.moveOperation(operation.id, 'failed', { failure: CANCELED_AT_PROVIDER, closed_at: change.now });
    return;
  }
  endCharge(change, operation, operation.status === 'authorized' ? AUTHORIZATION_EXPIRED : CANCELED_AT_PROVIDER, true);
}

/** Ends a charge that took nothing; the payment follows where it goes by this one and no other holds its money. */
export function endCharge(change: Change, operation: Operation, failure: Failure, closed: boolean): void {
  const closed_at = closed ? (operation.closed_at ?? change.now) : operation.closed_at;
  const leads = isLeading(change, operation);
  const failsPayment = leads && !change.operations.some((o) => o.id !== operation.id && holdsMoney(o));
  if (!change.moveOperation(operation.id, 'failed', { failure, closed_at })) {
    change.updateOperation(operation.id, { closed_at });
    return;
  }
  const capture = pending(change, 'capture');
  if (capture && leads && operation.status === 'authorized')
    change.moveOperation(capture.id, 'failed', { failure: NOT_CAPTURABLE });
  if (failsPayment) change.movePayment('failed', operation.id, { failure, next_action: null });
}
