import { describe, expect, it } from 'vitest';
import { applyChargeFact, currentCharge } from '../../../src/domain/apply-charge-fact.js';
import { applyOutcome } from '../../../src/domain/apply-outcome.js';
import type { Change } from '../../../src/domain/change.js';
import { aPayment, anOperation, changeOf, chargeFact, FAILURE, NOW } from '../../support/domain.js';

const kindsOf = (change: Change) => change.anomalies.map(({ kind }) => kind);
const eventsOf = (change: Change) => change.events.map(({ type }) => type);

/** A second try, after a first one that was declined. */
function paidAgain(first: Parameters<typeof anOperation>[0] = {}, second: Parameters<typeof anOperation>[0] = {}) {
  return [
    anOperation({ status: 'failed', failure: FAILURE, provider_payment_id: 'pay-1', ...first }),
    anOperation({
      id: 'charge-2',
      try_number: 2,
      provider_key: 'provider-key-2',
      provider_payment_id: null,
      ...second,
    }),
  ];
}

describe('what a provider says of a charge in flight', () => {
  it.each([
    ['succeeded', 'PaymentSucceeded.v1'],
    ['authorized', 'PaymentAuthorized.v1'],
    ['failed', 'PaymentFailed.v1'],
    ['requires_action', 'PaymentRequiresAction.v1'],
  ] as const)('%s moves operation and payment, under one event', (status, event) => {
    const change = changeOf(aPayment(), [anOperation()]);
    applyChargeFact(change, 'charge-1', chargeFact({ status }));
    expect(change.payment).toMatchObject({ status, version: 2, provider_payment_id: 'pay-1' });
    expect(change.operation('charge-1')).toMatchObject({ status, provider_payment_id: 'pay-1' });
    expect(eventsOf(change)).toEqual([event]);
    expect(change.events[0]!.sequence).toBe(2);
    expect(change.decidedOperations.map(({ id }) => id)).toEqual(['charge-1']);
    expect(change.history).toMatchObject([{ from: 'processing', to: status, version: 2, operation_id: 'charge-1' }]);
    expect(change.anomalies).toEqual([]);
  });

  it('processing only tells its name', () => {
    const change = changeOf(aPayment(), [anOperation()]);
    applyChargeFact(change, 'charge-1', chargeFact({ status: 'processing' }));
    expect(change.payment).toMatchObject({ status: 'processing', provider_payment_id: 'pay-1', version: 2 });
    expect(change.events).toEqual([]);
    expect(change.decidedOperations).toEqual([]);
  });

  it('canceled is a failure that is closed', () => {
    const change = changeOf(aPayment(), [anOperation()]);
    applyChargeFact(change, 'charge-1', chargeFact({ status: 'canceled' }));
    expect(change.payment.status).toBe('failed');
    expect(change.operation('charge-1').closed_at).toEqual(change.now);
  });

  it('told twice changes nothing the second time', () => {
    for (const status of ['succeeded', 'authorized', 'failed', 'requires_action', 'processing', 'canceled'] as const) {
      const first = changeOf(aPayment(), [anOperation()]);
      applyChargeFact(first, 'charge-1', chargeFact({ status }));
      const second = changeOf(first.payment, first.operations);
      applyChargeFact(second, 'charge-1', chargeFact({ status }));
      expect(second.isEmpty, status).toBe(true);
    }
  });

  it('whatever ends it takes it off the operators’ list', () => {
    for (const status of ['succeeded', 'authorized', 'failed', 'requires_action', 'canceled'] as const) {
      const change = changeOf(aPayment(), [anOperation({ needs_review_at: NOW })]);
      applyChargeFact(change, 'charge-1', chargeFact({ status }));
      expect(change.operation('charge-1').needs_review_at, status).toBeNull();
    }
    const change = changeOf(aPayment(), paidAgain({}, { needs_review_at: NOW }));
    applyOutcome(change, 'charge-2', { type: 'previous_took', previous_id: 'charge-1', fact: chargeFact() });
    expect(change.operation('charge-2')).toMatchObject({ status: 'void', needs_review_at: null });
  });
});

const EXPIRED = { code: 'authorization_expired', message: 'It expired.' } as const;

describe('facts that come late', () => {
  it('of a decline after the success change nothing', () => {
    const payment = aPayment({ status: 'succeeded', amount_captured_minor: 1000n, provider_payment_id: 'pay-1' });
    const change = changeOf(payment, [anOperation({ status: 'succeeded', provider_payment_id: 'pay-1' })]);
    for (const status of ['failed', 'requires_action', 'processing', 'authorized', 'canceled'] as const) {
      applyChargeFact(change, 'charge-1', chargeFact({ status }));
    }
    expect(change.isEmpty).toBe(true);
  });

  it('of a success after the decline: the payment succeeds, without an anomaly', () => {
    const change = changeOf(aPayment({ status: 'failed', failure: FAILURE }), [
      anOperation({ status: 'failed', failure: FAILURE }),
    ]);
    applyChargeFact(change, 'charge-1', chargeFact());
    expect(change.payment).toMatchObject({ status: 'succeeded', failure: null, amount_captured_minor: 1000n });
    expect(change.operation('charge-1')).toMatchObject({ status: 'succeeded', failure: null });
    expect(kindsOf(change)).toEqual([]);
    // Its outcome was known before: who waited for it was answered then.
    expect(change.decidedOperations).toEqual([]);
  });

  it('of a success after an operator gave it up: late_success', () => {
    const change = changeOf(aPayment({ status: 'failed', failure: FAILURE }), [
      anOperation({ status: 'failed', failure: FAILURE, resolved_by: 'anna' }),
    ]);
    applyChargeFact(change, 'charge-1', chargeFact());
    expect(change.payment.status).toBe('succeeded');
    expect(kindsOf(change)).toEqual(['late_success']);
  });

  it('of a success after a cancel: succeeded, and paid_after_cancel', () => {
    const change = changeOf(aPayment({ status: 'canceled' }), [
      anOperation({ status: 'failed', failure: FAILURE }),
      anOperation({ id: 'cancel', kind: 'cancel', status: 'succeeded', amount_minor: 0n }),
    ]);
    applyChargeFact(change, 'charge-1', chargeFact());
    expect(change.payment.status).toBe('succeeded');
    expect(kindsOf(change)).toEqual(['paid_after_cancel']);
  });
});

describe('a superseded try', () => {
  it.each(['failed', 'canceled', 'processing', 'requires_action'] as const)(
    'that is %s never fails or cancels the payment',
    (status) => {
      for (const now of ['processing', 'requires_action', 'authorized', 'succeeded'] as const) {
        const change = changeOf(aPayment({ status: now }), paidAgain({}, { status: now }));
        applyChargeFact(change, 'charge-1', chargeFact({ status, closed: true }));
        expect(change.payment.status).toBe(now);
        expect(change.operation('charge-2').status).toBe(now);
        expect(change.events).toEqual([]);
      }
    },
  );

  it('that is canceled at the provider (as we ask before paying again) does not end a cancel of the next try', () => {
    const cancel = anOperation({ id: 'cancel', kind: 'cancel', amount_minor: 0n });
    for (const status of ['authorized', 'requires_action'] as const) {
      const change = changeOf(aPayment({ status, capture: 'manual' }), [...paidAgain({}, { status }), cancel]);
      applyChargeFact(change, 'charge-1', chargeFact({ status: 'canceled' }));
      expect(change.operation('cancel').status).toBe('processing');
      expect(change.payment.status).toBe(status);
      expect(change.decidedOperations).toEqual([]);
    }
  });

  it('that succeeds while the next is in flight: the payment succeeds; the next one’s success is paid_twice', () => {
    const change = changeOf(aPayment(), paidAgain());
    applyChargeFact(change, 'charge-1', chargeFact());
    expect(change.payment).toMatchObject({ status: 'succeeded', provider_payment_id: 'pay-1' });
    expect(kindsOf(change)).toEqual([]);

    const then = changeOf(change.payment, change.operations);
    applyChargeFact(then, 'charge-2', chargeFact({ provider_payment_id: 'pay-2' }));
    expect(kindsOf(then)).toEqual(['paid_twice']);
    expect(then.anomalies[0]).toMatchObject({ operation_id: 'charge-2' });
    expect(then.payment).toMatchObject({
      status: 'succeeded',
      amount_captured_minor: 1000n,
      provider_payment_id: 'pay-1',
    });
    expect(then.operation('charge-2').status).toBe('succeeded');
  });

  it('that succeeds after the next one did: paid_twice on it', () => {
    const change = changeOf(
      aPayment({ status: 'succeeded', amount_captured_minor: 1000n, provider_payment_id: 'pay-2' }),
      paidAgain({}, { status: 'succeeded', provider_payment_id: 'pay-2' }),
    );
    applyChargeFact(change, 'charge-1', chargeFact());
    expect(kindsOf(change)).toEqual(['paid_twice']);
    expect(change.anomalies[0]).toMatchObject({ operation_id: 'charge-1' });
    expect(change.payment).toMatchObject({ amount_captured_minor: 1000n, provider_payment_id: 'pay-2' });
  });

  it('that turns out to have the money voids the new one', () => {
    const change = changeOf(aPayment(), paidAgain());
    applyOutcome(change, 'charge-2', { type: 'previous_took', previous_id: 'charge-1', fact: chargeFact() });
    expect(change.operation('charge-2').status).toBe('void');
    expect(change.operation('charge-1').status).toBe('succeeded');
    expect(change.payment).toMatchObject({ status: 'succeeded', provider_payment_id: 'pay-1' });
    expect(change.decidedOperations.map(({ id }) => id)).toEqual(['charge-2']);
    expect(kindsOf(change)).toEqual([]);
  });

  it('that holds an authorization after all: the next one’s decline does not fail the payment', () => {
    const change = changeOf(aPayment({ capture: 'manual' }), paidAgain());
    applyChargeFact(change, 'charge-1', chargeFact({ status: 'authorized' }));
    expect(change.payment).toMatchObject({ status: 'authorized', provider_payment_id: 'pay-1' });
    applyChargeFact(change, 'charge-2', chargeFact({ status: 'failed', provider_payment_id: 'pay-2' }));
    expect(change.operation('charge-2').status).toBe('failed');
    expect(change.payment).toMatchObject({ status: 'authorized', failure: null, provider_payment_id: 'pay-1' });

    // The payment goes by it now: its own end is the payment's.
    const expired = changeOf(change.payment, change.operations);
    applyChargeFact(expired, 'charge-1', chargeFact({ status: 'failed', failure: EXPIRED }));
    expect(expired.payment).toMatchObject({ status: 'failed', failure: { code: 'authorization_expired' } });
    const cancel = anOperation({ id: 'cancel', kind: 'cancel', amount_minor: 0n });
    const canceled = changeOf(change.payment, [...change.operations, cancel]);
    applyChargeFact(canceled, 'charge-1', chargeFact({ status: 'canceled' }));
    expect(canceled.payment.status).toBe('canceled');
    expect(canceled.operation('cancel').status).toBe('succeeded');
  });

  it('is not what the payment goes by: the latest that is not void is', () => {
    const [first, second] = paidAgain();
    const third = anOperation({ id: 'charge-3', try_number: 3, status: 'void' });
    expect(currentCharge([second!, first!])?.id).toBe('charge-2');
    expect(currentCharge([first!, second!, third])?.id).toBe('charge-2');
    expect(currentCharge([])).toBeUndefined();
  });
});

describe('amounts and currencies', () => {
  it.each([
    ['less than asked', { amount_minor: 999n, amount_captured_minor: 999n }, 'amount_mismatch'],
    ['less captured than asked', { amount_captured_minor: 1n }, 'amount_mismatch'],
    ['nothing captured', { amount_captured_minor: 0n }, 'amount_mismatch'],
    ['another currency', { currency: 'USD' }, 'currency_mismatch'],
  ])('%s is never paid: an anomaly, for operators', (_name, fields, kind) => {
    const change = changeOf(aPayment(), [anOperation()]);
    applyChargeFact(change, 'charge-1', chargeFact(fields));
    expect(change.payment).toMatchObject({ status: 'processing', amount_captured_minor: 0n });
    expect(change.operation('charge-1')).toMatchObject({ status: 'processing', needs_review_at: change.now });
    expect(kindsOf(change)).toEqual([kind]);
    expect(eventsOf(change)).toEqual(['PaymentAnomalyDetected.v1']);

    const again = changeOf(change.payment, change.operations, new Set([`${kind} charge-1`]));
    applyChargeFact(again, 'charge-1', chargeFact(fields));
    expect(again.isEmpty).toBe(true);
  });

  it('more than asked is paid, and an anomaly, once', () => {
    const change = changeOf(aPayment(), [anOperation()]);
    const fact = chargeFact({ amount_minor: 1500n, amount_captured_minor: 1500n });
    applyChargeFact(change, 'charge-1', fact);
    expect(change.payment).toMatchObject({ status: 'succeeded', amount_captured_minor: 1500n });
    expect(kindsOf(change).sort()).toEqual(['amount_mismatch', 'captured_too_much']);
    const before = change.anomalies.length;
    applyChargeFact(change, 'charge-1', fact);
    expect(change.anomalies).toHaveLength(before);
  });

  it('one anomaly is raised once, also within one change', () => {
    const change = changeOf(aPayment(), [anOperation()]);
    applyChargeFact(change, 'charge-1', chargeFact({ currency: 'USD' }));
    applyChargeFact(change, 'charge-1', chargeFact({ currency: 'USD' }));
    expect(kindsOf(change)).toEqual(['currency_mismatch']);
  });

  it('totals never shrink by an older fact', () => {
    const payment = aPayment({ status: 'succeeded', amount_captured_minor: 1000n, provider_payment_id: 'pay-1' });
    const change = changeOf(payment, [anOperation({ status: 'succeeded', provider_payment_id: 'pay-1' })]);
    applyChargeFact(change, 'charge-1', chargeFact({ amount_captured_minor: 1000n }));
    expect(change.payment.amount_captured_minor).toBe(1000n);
  });
});

describe('authorize, capture, cancel', () => {
  const authorized = { status: 'authorized', capture: 'manual' } as const;
  const charge = anOperation({ status: 'authorized', provider_payment_id: 'pay-1' });

  it.each([
    ['whole', 1000n],
    ['partial', 400n],
  ])('a %s capture of ours', (_name, amount_minor) => {
    const capture = anOperation({ id: 'capture', kind: 'capture', amount_minor });
    const change = changeOf(aPayment(authorized), [charge, capture]);
    applyChargeFact(change, 'charge-1', chargeFact({ amount_captured_minor: amount_minor }));
    expect(change.payment).toMatchObject({ status: 'succeeded', amount_captured_minor: amount_minor });
    expect(change.operation('capture').status).toBe('succeeded');
    expect(kindsOf(change)).toEqual([]);
    // The same told later, when no capture is in flight any more: a partial capture is no mismatch.
    const later = changeOf(change.payment, change.operations);
    applyChargeFact(later, 'charge-1', chargeFact({ amount_captured_minor: amount_minor }));
    expect(later.isEmpty).toBe(true);
  });

  it('more captured than asked is an anomaly of the capture', () => {
    const capture = anOperation({ id: 'capture', kind: 'capture', amount_minor: 400n });
    const change = changeOf(aPayment(authorized), [charge, capture]);
    applyChargeFact(change, 'charge-1', chargeFact({ amount_captured_minor: 900n }));
    expect(change.anomalies).toMatchObject([{ kind: 'captured_too_much', operation_id: 'capture' }]);
    expect(change.payment.amount_captured_minor).toBe(900n);
  });

  it('captured at the provider’s own side while our cancel is in flight: succeeded, the cancel has failed', () => {
    const cancel = anOperation({ id: 'cancel', kind: 'cancel', amount_minor: 0n });
    const change = changeOf(aPayment(authorized), [charge, cancel]);
    applyChargeFact(change, 'charge-1', chargeFact());
    expect(change.payment.status).toBe('succeeded');
    expect(change.operation('cancel').status).toBe('failed');
  });

  it('our cancel cancels', () => {
    const cancel = anOperation({ id: 'cancel', kind: 'cancel', amount_minor: 0n });
    for (const status of ['authorized', 'requires_action'] as const) {
      const change = changeOf(aPayment({ ...authorized, status }), [{ ...charge, status }, cancel]);
      applyChargeFact(change, 'charge-1', chargeFact({ status: 'canceled' }));
      expect(change.payment.status).toBe('canceled');
      expect(change.operation('cancel').status).toBe('succeeded');
      expect(change.operation('charge-1')).toMatchObject({ status: 'failed', closed_at: change.now });
    }
  });

  it('an authorization that expires fails the payment, and a capture in flight with it', () => {
    const capture = anOperation({ id: 'capture', kind: 'capture' });
    const change = changeOf(aPayment(authorized), [charge, capture]);
    applyChargeFact(change, 'charge-1', chargeFact({ status: 'failed', failure: EXPIRED }));
    expect(change.payment).toMatchObject({ status: 'failed', failure: { code: 'authorization_expired' } });
    expect(change.operation('capture').status).toBe('failed');
  });

  it('a decline that is heard of after the authorization it led to changes nothing', () => {
    const capture = anOperation({ id: 'capture', kind: 'capture' });
    const change = changeOf(aPayment(authorized), [charge, capture]);
    applyChargeFact(change, 'charge-1', chargeFact({ status: 'failed' }));
    expect(change.isEmpty).toBe(true);
    // What is closed can't hold money any more, whatever it is called.
    applyChargeFact(change, 'charge-1', chargeFact({ status: 'failed', closed: true }));
    expect(change.payment).toMatchObject({ status: 'failed', failure: { code: 'authorization_expired' } });
  });
});
