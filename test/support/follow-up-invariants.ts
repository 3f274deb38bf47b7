import { expect } from 'vitest';
import type { TestSystem } from './app.js';

interface PaymentRow {
  readonly id: string;
  readonly status: string;
  readonly capture: string;
  readonly amount_minor: bigint;
  readonly amount_captured_minor: bigint;
  readonly amount_refunded_minor: bigint;
  readonly refund_reserved_minor: bigint;
}

interface OperationRow {
  readonly id: string;
  readonly payment_id: string;
  readonly kind: string;
  readonly status: string;
  readonly amount_minor: bigint;
  readonly provider_key: string;
  readonly excess_operation_id: string | null;
}

/**
 * What holds of captures, cancels and refunds at every moment at which nothing is under way: our counters are the sums of
 * our rows, and each operation that we say succeeded moved exactly once at the provider, the others not at all. Beside
 * `checkInvariants`, for files whose payments are only changed through us.
 */
export async function checkFollowUps(system: TestSystem): Promise<void> {
  const payments = await system.query<PaymentRow>('select * from payment');
  const operations = await system.query<OperationRow>(`select * from operation where kind <> 'charge'`);
  const movements = await system.simulator.movements();
  for (const operation of operations) {
    const moved = movements.filter(({ reference }) => reference === operation.provider_key);
    const what = `${operation.kind} ${operation.id} (${operation.status})`;
    const kinds = moved.map(({ kind, amount_minor }) => `${kind} ${amount_minor}`);
    const amount = operation.kind === 'cancel' ? moved[0]?.amount_minor : operation.amount_minor;
    if (operation.status === 'failed') expect(kinds, what).toEqual([]);
    else if (operation.status === 'succeeded' && operation.kind === 'cancel')
      expect(kinds.length, what).toBeLessThan(2);
    else if (operation.status === 'succeeded') expect(kinds, what).toEqual([`${operation.kind} ${amount}`]);
    else expect(kinds.length, what).toBeLessThan(2);
  }
  for (const payment of payments) checkCounters(payment, operations);
}

function checkCounters(payment: PaymentRow, operations: readonly OperationRow[]): void {
  const refunds = operations.filter(
    ({ payment_id, kind, excess_operation_id }) =>
      payment_id === payment.id && kind === 'refund' && excess_operation_id === null,
  );
  const sum = (statuses: readonly string[]): bigint =>
    refunds
      .filter(({ status }) => statuses.includes(status))
      .reduce((total, { amount_minor }) => total + amount_minor, 0n);
  expect(payment.amount_refunded_minor, `refunded of ${payment.id}`).toBe(sum(['succeeded']));
  expect(payment.refund_reserved_minor, `reserved of ${payment.id}`).toBe(sum(['succeeded', 'processing']));
  expect(payment.refund_reserved_minor <= payment.amount_captured_minor, `cap of ${payment.id}`).toBe(true);
  expect(payment.amount_captured_minor <= payment.amount_minor, `captured of ${payment.id}`).toBe(true);
  const isCaptured = payment.status === 'succeeded';
  expect(payment.amount_captured_minor > 0n, `captured of ${payment.id}, ${payment.status}`).toBe(isCaptured);
}
