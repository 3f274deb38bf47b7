import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { admit } from '../../../src/domain/admission.js';
import type { CancelCommand, CaptureCommand, RefundCommand } from '../../../src/domain/command.js';
import { PAYMENT_STATUSES } from '../../../src/domain/payment.js';
import { anOperation, aPayment, newHash } from '../../support/domain.js';

const capture = (amount_minor: bigint | null = null): CaptureCommand => ({
  kind: 'capture',
  hash: newHash(),
  payment_id: 'payment',
  amount_minor,
});
const cancel: CancelCommand = { kind: 'cancel', hash: newHash(), payment_id: 'payment' };
const refund = (amount_minor: bigint | null = null): RefundCommand => ({
  kind: 'refund',
  hash: newHash(),
  payment_id: 'payment',
  amount_minor,
  reason: null,
});
const done = [anOperation({ status: 'succeeded' })];

describe('a capture', () => {
  it('takes all that is authorized, or less', () => {
    const payment = aPayment({ status: 'authorized', capture: 'manual' });
    expect(admit(payment, done, capture())).toEqual({ type: 'admitted', amount_minor: 1000n });
    expect(admit(payment, done, capture(1n))).toEqual({ type: 'admitted', amount_minor: 1n });
    expect(admit(payment, done, capture(1000n))).toEqual({ type: 'admitted', amount_minor: 1000n });
    expect(admit(payment, done, capture(1001n))).toMatchObject({
      type: 'refused',
      for_now: false,
      error: { code: 'amount_exceeds_remaining' },
    });
  });

  it.each(PAYMENT_STATUSES.filter((status) => status !== 'authorized'))(
    'is refused for a payment that is %s',
    (status) => {
      expect(admit(aPayment({ status }), done, capture())).toMatchObject({
        type: 'refused',
        error: { code: 'invalid_payment_state' },
        // What may still become authorized is refused for the moment only.
        for_now: status === 'processing' || status === 'requires_action',
      });
    },
  );
});

describe('a capture of what is captured already', () => {
  const payment = aPayment({ status: 'succeeded', capture: 'manual', amount_captured_minor: 1000n });
  const earlier = (status: 'succeeded' | 'failed') => [
    ...done,
    anOperation({ id: 'capture', kind: 'capture', status }),
  ];

  it('is the provider’s to answer where no capture on record took it', () => {
    expect(admit(payment, done, capture())).toEqual({ type: 'admitted', amount_minor: 1000n });
    expect(admit(payment, earlier('failed'), capture())).toEqual({ type: 'admitted', amount_minor: 1000n });
  });

  it('is refused where one did, or the charge itself', () => {
    expect(admit(payment, earlier('succeeded'), capture())).toMatchObject({ type: 'refused', for_now: false });
    expect(admit({ ...payment, capture: 'automatic' }, done, capture())).toMatchObject({ type: 'refused' });
  });
});

describe('a cancel', () => {
  it.each(PAYMENT_STATUSES)('of a payment that is %s', (status) => {
    const admission = admit(aPayment({ status }), done, cancel);
    if (status === 'authorized' || status === 'requires_action') {
      expect(admission).toEqual({ type: 'admitted', amount_minor: 0n });
    } else expect(admission).toMatchObject({ type: 'refused', error: { code: 'invalid_payment_state' } });
  });
});

describe('one movement at a time', () => {
  it.each(['charge', 'capture', 'cancel'] as const)(
    'a %s in flight refuses capture and cancel for the moment',
    (kind) => {
      const inFlight = [anOperation({ id: 'x', kind })];
      for (const command of [capture(), cancel]) {
        expect(admit(aPayment({ status: 'authorized' }), inFlight, command)).toMatchObject({
          type: 'refused',
          for_now: true,
          error: { code: 'operation_in_progress' },
        });
      }
    },
  );

  it('a refund in flight does not', () => {
    const inFlight = [anOperation({ id: 'x', kind: 'refund' })];
    expect(admit(aPayment({ status: 'authorized' }), inFlight, cancel).type).toBe('admitted');
  });
});

describe('a refund', () => {
  const paid = aPayment({ status: 'succeeded', amount_captured_minor: 1000n });

  it('gives back what is left when it names no amount', () => {
    expect(admit(paid, done, refund())).toEqual({ type: 'admitted', amount_minor: 1000n });
    expect(admit({ ...paid, refund_reserved_minor: 300n }, done, refund())).toEqual({
      type: 'admitted',
      amount_minor: 700n,
    });
  });

  it.each([
    [1001n, 0n, 0n, false],
    [701n, 300n, 300n, false],
    [701n, 300n, 0n, true],
    [1n, 1000n, 1000n, false],
    [null, 1000n, 1000n, false],
    [null, 1000n, 500n, true],
  ])(
    'of %s with %s reserved and %s refunded is refused (for the moment: %s)',
    (amount, reserved, refunded, for_now) => {
      const payment = { ...paid, refund_reserved_minor: reserved, amount_refunded_minor: refunded };
      expect(admit(payment, done, refund(amount))).toMatchObject({
        type: 'refused',
        for_now,
        error: { code: 'amount_exceeds_remaining' },
      });
    },
  );

  it.each(PAYMENT_STATUSES.filter((status) => status !== 'succeeded'))(
    'of a payment that is %s is refused',
    (status) => {
      expect(admit({ ...paid, status }, done, refund(1n))).toMatchObject({
        type: 'refused',
        error: { code: 'invalid_payment_state' },
      });
    },
  );

  it('never passes what was captured, in whatever order amounts are asked for', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: 1n, max: 9007199254740991n }),
        fc.array(fc.option(fc.bigInt({ min: 1n, max: 9007199254740991n }))),
        (captured, amounts) => {
          let payment = { ...paid, amount_captured_minor: captured };
          for (const amount of amounts) {
            const admission = admit(payment, done, refund(amount));
            if (admission.type !== 'admitted') continue;
            expect(admission.amount_minor).toBeGreaterThan(0n);
            payment = { ...payment, refund_reserved_minor: payment.refund_reserved_minor + admission.amount_minor };
          }
          expect(payment.refund_reserved_minor).toBeLessThanOrEqual(captured);
        },
      ),
    );
  });
});
