import { describe, expect, it } from 'vitest';
import { canMoveOperation, canMovePayment, isDecided } from '../../../src/domain/moves.js';
import {
  OPERATION_KINDS,
  type OperationStatus,
  PAYMENT_STATUSES,
  type PaymentStatus,
} from '../../../src/domain/payment.js';

// Written out from docs/architecture.md, not taken from the module: every pair is looked at, in both directions.
const PAYMENT_MOVES: ReadonlySet<string> = new Set([
  'processing → requires_action',
  'processing → authorized',
  'processing → succeeded',
  'processing → failed',
  'requires_action → processing',
  'requires_action → authorized',
  'requires_action → succeeded',
  'requires_action → failed',
  'requires_action → canceled',
  'authorized → succeeded',
  'authorized → canceled',
  'authorized → failed',
  'failed → processing',
  'failed → succeeded',
  'failed → authorized',
  'canceled → succeeded',
]);

describe('a payment', () => {
  it.each(
    PAYMENT_STATUSES.flatMap((from) => PAYMENT_STATUSES.map((to) => [from, to] as [PaymentStatus, PaymentStatus])),
  )('%s → %s', (from, to) => {
    expect(canMovePayment(from, to)).toBe(PAYMENT_MOVES.has(`${from} → ${to}`));
  });

  it('that has succeeded stays so', () => {
    for (const to of PAYMENT_STATUSES) expect(canMovePayment('succeeded', to)).toBe(false);
  });
});

const OPERATION_STATUSES: readonly OperationStatus[] = [
  'processing',
  'requires_action',
  'authorized',
  'succeeded',
  'failed',
  'void',
];
const OPERATION_MOVES: Readonly<Record<(typeof OPERATION_KINDS)[number], ReadonlySet<string>>> = {
  charge: new Set([
    'processing → requires_action',
    'processing → authorized',
    'processing → succeeded',
    'processing → failed',
    'processing → void',
    'requires_action → processing',
    'requires_action → authorized',
    'requires_action → succeeded',
    'requires_action → failed',
    'authorized → succeeded',
    'authorized → failed',
    'failed → authorized',
    'failed → succeeded',
    // It was never sent, and yet: facts are facts.
    'void → authorized',
    'void → succeeded',
  ]),
  // What an operator gave up may turn out to have happened: failed → succeeded.
  capture: new Set(['processing → succeeded', 'processing → failed', 'failed → succeeded']),
  cancel: new Set(['processing → succeeded', 'processing → failed', 'failed → succeeded']),
  refund: new Set(['processing → succeeded', 'processing → failed', 'failed → succeeded', 'succeeded → failed']),
};

describe.each(OPERATION_KINDS)('a %s', (kind) => {
  it.each(
    OPERATION_STATUSES.flatMap((from) =>
      OPERATION_STATUSES.map((to) => [from, to] as [OperationStatus, OperationStatus]),
    ),
  )('%s → %s', (from, to) => {
    expect(canMoveOperation(kind, from, to)).toBe(OPERATION_MOVES[kind].has(`${from} → ${to}`));
  });
});

it('only what is processing is undecided', () => {
  expect(OPERATION_STATUSES.filter((status) => !isDecided(status))).toEqual(['processing']);
});
