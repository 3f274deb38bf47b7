import type { OperationKind, OperationStatus, PaymentStatus } from './payment.js';

/**
 * The moves of a payment's status (docs/architecture.md), the only ones there are, for every channel: answers,
 * webhooks, reconciliation, operators. `canceled → succeeded` happens only as an anomaly: money was taken after a cancel.
 */
const PAYMENT_MOVES: Readonly<Record<PaymentStatus, readonly PaymentStatus[]>> = {
  processing: ['requires_action', 'authorized', 'succeeded', 'failed'],
  requires_action: ['processing', 'authorized', 'succeeded', 'failed', 'canceled'],
  authorized: ['succeeded', 'canceled', 'failed'],
  failed: ['processing', 'succeeded', 'authorized'],
  canceled: ['succeeded'],
  succeeded: [],
};

/** The moves of an operation's status. Only a charge knows `requires_action`, `authorized` and `void`. */
const CHARGE_MOVES: Readonly<Record<OperationStatus, readonly OperationStatus[]>> = {
  processing: ['requires_action', 'authorized', 'succeeded', 'failed', 'void'],
  requires_action: ['processing', 'authorized', 'succeeded', 'failed'],
  authorized: ['succeeded', 'failed'],
  failed: ['authorized', 'succeeded'],
  succeeded: [],
  void: ['authorized', 'succeeded'],
};
const OTHER_MOVES: Readonly<Record<OperationStatus, readonly OperationStatus[]>> = {
  processing: ['succeeded', 'failed'],
  requires_action: [],
  authorized: [],
  // Only for one that an operator gave up, and that happened all the same.
  failed: ['succeeded'],
  succeeded: [],
  void: [],
};
const REFUND_MOVES: Readonly<Record<OperationStatus, readonly OperationStatus[]>> = {
  ...OTHER_MOVES,
  // The provider took it back.
  succeeded: ['failed'],
};

/** Whether a payment in `from` may become `to`. Staying is no move. */
export function canMovePayment(from: PaymentStatus, to: PaymentStatus): boolean {
  return PAYMENT_MOVES[from].includes(to);
}

/** Whether an operation of this kind in `from` may become `to`. */
export function canMoveOperation(kind: OperationKind, from: OperationStatus, to: OperationStatus): boolean {
  const moves = kind === 'charge' ? CHARGE_MOVES : kind === 'refund' ? REFUND_MOVES : OTHER_MOVES;
  return moves[from].includes(to);
}

/** Whether an operation's outcome is known, so that whoever waits for it can be answered. */
export function isDecided(status: OperationStatus): boolean {
  return status !== 'processing';
}
