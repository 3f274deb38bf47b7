import { applyChargeFact, currentCharge, endCharge } from './apply-charge-fact.js';
import { applyRefundFact, failRefund } from './apply-refund-fact.js';
import type { Change } from './change.js';
import type { ChargeFact, Fact } from './fact.js';
import type { Failure } from './payment.js';

/** What was learned about an operation by sending it, or by asking about it. */
export type Outcome =
  | { readonly type: 'fact'; readonly fact: Fact }
  /** The only attempt ever started surely moved nothing: not sent, or refused. */
  | { readonly type: 'never_happened'; readonly failure: Failure }
  /** The try before this one turned out to hold or have the money: this one was not sent, and never will be. */
  | { readonly type: 'previous_took'; readonly previous_id: string; readonly fact: ChargeFact | null }
  /** An unknown outcome is not a failure (R5): it is asked about until the provider has said. */
  | { readonly type: 'unknown'; readonly reason: string };

/** Applies an outcome to the operation that it was about. */
export function applyOutcome(change: Change, operation_id: string, outcome: Outcome): void {
  switch (outcome.type) {
    case 'fact':
      return applyFact(change, operation_id, outcome.fact);
    case 'never_happened':
      return applyNeverHappened(change, operation_id, outcome.failure);
    case 'previous_took':
      change.moveOperation(operation_id, 'void');
      // Null: it is on record already.
      if (outcome.fact) applyChargeFact(change, outcome.previous_id, outcome.fact);
      return undefined;
    case 'unknown':
      return undefined;
  }
}

/** Applies a fact that an operation's call or look-up gave. A capture's or cancel's tells of the charge it belongs to. */
export function applyFact(change: Change, operation_id: string, fact: Fact): void {
  if (fact.type === 'refund') return applyRefundFact(change, operation_id, fact);
  const operation = change.operation(operation_id);
  if (operation.kind === 'charge') return applyChargeFact(change, operation_id, fact);
  const charge =
    change.operations.find((o) => o.kind === 'charge' && o.provider_payment_id === fact.provider_payment_id) ??
    currentCharge(change.operations);
  if (charge) applyChargeFact(change, charge.id, fact);
}

function applyNeverHappened(change: Change, operation_id: string, failure: Failure): void {
  const operation = change.operation(operation_id);
  if (operation.status !== 'processing') return;
  if (operation.kind === 'charge') return endCharge(change, operation, failure, true);
  if (operation.kind === 'refund') return failRefund(change, operation, failure);
  change.moveOperation(operation_id, 'failed', { failure });
}
