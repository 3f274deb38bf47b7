import { describe, expect, it } from 'vitest';
import { addRefund, applyRefundFact } from '../../../src/domain/apply-refund-fact.js';
import type { Change } from '../../../src/domain/change.js';
import type { Operation, Payment } from '../../../src/domain/payment.js';
import { aPayment, anOperation, changeOf, FAILURE, NOW, refundFact } from '../../support/domain.js';

const taken: Partial<Payment> = {
  status: 'succeeded',
  amount_captured_minor: 1000n,
  refund_reserved_minor: 400n,
  provider_payment_id: 'pay-1',
};
const charge = anOperation({ status: 'succeeded', provider_payment_id: 'pay-1' });
const aRefund = (fields: Partial<Operation> = {}): Operation =>
  anOperation({ id: 'refund', kind: 'refund', amount_minor: 400n, provider_key: 'refund-key', ...fields });

function refunded(payment: Partial<Payment>, refund: Operation, fact: Parameters<typeof refundFact>[0]): Change {
  const change = changeOf(aPayment({ ...taken, ...payment }), [charge, refund]);
  applyRefundFact(change, refund.id, refundFact(fact));
  return change;
}

const kindsOf = (change: Change) => change.anomalies.map(({ kind }) => kind);
const eventsOf = (change: Change) => change.events.map(({ type }) => type);
const amountsOf = ({ payment }: Change) => [payment.amount_refunded_minor, payment.refund_reserved_minor];

describe('what a provider says of a refund in flight', () => {
  it('succeeded: it counts as refunded, under one event', () => {
    const change = refunded({}, aRefund({ needs_review_at: NOW }), {});
    expect(change.operation('refund')).toMatchObject({
      status: 'succeeded',
      provider_refund_id: 'refund-at-provider',
      needs_review_at: null,
    });
    expect(amountsOf(change)).toEqual([400n, 400n]);
    expect(change.payment.status).toBe('succeeded');
    expect(eventsOf(change)).toEqual(['RefundSucceeded.v1']);
    expect(change.decidedOperations.map(({ id }) => id)).toEqual(['refund']);
    expect(change.anomalies).toEqual([]);
  });

  it.each(['failed', 'canceled'] as const)('%s: its amount is free again', (status) => {
    const change = refunded({}, aRefund({ needs_review_at: NOW }), { status, failure: FAILURE });
    expect(change.operation('refund')).toMatchObject({ status: 'failed', failure: FAILURE, needs_review_at: null });
    expect(amountsOf(change)).toEqual([0n, 0n]);
    expect(eventsOf(change)).toEqual(['RefundFailed.v1']);
  });

  it('without a reason has failed with one of ours', () => {
    const change = refunded({}, aRefund(), { status: 'canceled' });
    expect(change.operation('refund').failure?.code).toBe('processing_error');
  });

  it('processing only tells its name', () => {
    const change = refunded({}, aRefund(), { status: 'processing' });
    expect(change.operation('refund')).toMatchObject({
      status: 'processing',
      provider_refund_id: 'refund-at-provider',
    });
    expect(eventsOf(change)).toEqual([]);
    expect(amountsOf(change)).toEqual([0n, 400n]);
  });
});

describe('a refund that has ended', () => {
  const done: Partial<Payment> = { amount_refunded_minor: 400n };
  const succeeded = aRefund({ status: 'succeeded', provider_refund_id: 'refund-at-provider' });
  const failed = aRefund({ status: 'failed', failure: FAILURE, provider_refund_id: 'refund-at-provider' });

  it('told again changes nothing', () => {
    expect(refunded(done, succeeded, {}).isEmpty).toBe(true);
    expect(refunded(done, succeeded, { status: 'processing' }).isEmpty).toBe(true);
    expect(refunded({ refund_reserved_minor: 0n }, failed, { status: 'failed', failure: FAILURE }).isEmpty).toBe(true);
  });

  it('that the provider took back frees its amount', () => {
    const change = refunded(done, succeeded, { status: 'failed', failure: FAILURE });
    expect(change.operation('refund').status).toBe('failed');
    expect(amountsOf(change)).toEqual([0n, 0n]);
    expect(eventsOf(change)).toEqual(['RefundFailed.v1']);
    // What was answered stays answered.
    expect(change.decidedOperations).toEqual([]);
  });

  it('that has failed is not brought back by an older success', () => {
    expect(refunded({ refund_reserved_minor: 0n }, failed, {}).isEmpty).toBe(true);
  });

  it('that an operator gave up may turn out to have happened: counted, and late_success', () => {
    const change = refunded({ refund_reserved_minor: 0n }, { ...failed, resolved_by: 'anna' }, {});
    expect(change.operation('refund')).toMatchObject({ status: 'succeeded', failure: null });
    expect(amountsOf(change)).toEqual([400n, 400n]);
    expect(kindsOf(change)).toEqual(['late_success']);
  });
});

describe('amounts and currencies', () => {
  it.each([
    ['less', 100n],
    ['more', 600n],
  ])('%s than asked: what was given back counts, and is an anomaly', (_name, amount_minor) => {
    const change = refunded({}, aRefund(), { amount_minor });
    expect(amountsOf(change)).toEqual([amount_minor, amount_minor]);
    expect(change.operation('refund').amount_minor).toBe(amount_minor);
    expect(kindsOf(change)).toEqual(['amount_mismatch']);
  });

  it('another currency is an anomaly; its number does not count as ours', () => {
    const change = refunded({}, aRefund(), { currency: 'JPY', amount_minor: 60_000n });
    expect(amountsOf(change)).toEqual([400n, 400n]);
    expect(kindsOf(change)).toEqual(['currency_mismatch']);
  });

  it('more refunded than captured is recorded, as an anomaly', () => {
    const change = refunded({ amount_refunded_minor: 900n, refund_reserved_minor: 1300n }, aRefund(), {});
    expect(amountsOf(change)).toEqual([1300n, 1300n]);
    expect(kindsOf(change)).toEqual(['refunded_too_much']);
  });

  it.each(['processing', 'requires_action', 'authorized'] as const)(
    'of a payment that is still %s is compared when it is known what was captured',
    (status) => {
      expect(kindsOf(refunded({ status, amount_captured_minor: 0n }, aRefund(), {}))).toEqual([]);
    },
  );

  it.each(['failed', 'canceled'] as const)('of a payment that is %s is odd at once', (status) => {
    expect(kindsOf(refunded({ status, amount_captured_minor: 0n }, aRefund(), {}))).toEqual(['refunded_too_much']);
  });
});

describe('a refund that no client asked for', () => {
  const foreign = aRefund({ id: 'foreign', origin: 'provider', amount_minor: 300n, excess_operation_id: null });
  const excess = anOperation({ id: 'charge-2', try_number: 2, status: 'succeeded', provider_payment_id: 'pay-2' });

  it('of the payment’s own money counts from the beginning', () => {
    const change = changeOf(aPayment({ ...taken, refund_reserved_minor: 0n }), [charge]);
    addRefund(change, foreign);
    expect(amountsOf(change)).toEqual([0n, 300n]);
    expect(change.addedOperations.map(({ id }) => id)).toEqual(['foreign']);
    applyRefundFact(change, 'foreign', refundFact({ amount_minor: 300n }));
    expect(amountsOf(change)).toEqual([300n, 300n]);
    applyRefundFact(change, 'foreign', refundFact({ amount_minor: 300n, status: 'failed', failure: FAILURE }));
    expect(amountsOf(change)).toEqual([0n, 0n]);
  });

  it.each(['succeeded', 'failed'] as const)('of money taken twice counts nowhere, also when it has %s', (status) => {
    const change = changeOf(aPayment({ ...taken, refund_reserved_minor: 0n }), [charge, excess]);
    addRefund(change, { ...foreign, excess_operation_id: 'charge-2' });
    applyRefundFact(change, 'foreign', refundFact({ amount_minor: 300n, status }));
    expect(change.operation('foreign').status).toBe(status);
    expect(amountsOf(change)).toEqual([0n, 0n]);
    expect(kindsOf(change)).toEqual([]);
  });

  it('of money taken after a cancel is of the payment’s own', () => {
    const change = changeOf(aPayment({ ...taken, refund_reserved_minor: 0n }), [charge]);
    addRefund(change, { ...foreign, excess_operation_id: charge.id });
    expect(amountsOf(change)).toEqual([0n, 300n]);
  });
});
