import { describe, expect, it } from 'vitest';
import { judgeSecondCharge } from '../../../src/domain/second-guard.js';
import type { OperationStatus, PaymentStatus } from '../../../src/domain/payment.js';
import { aCommand, anOperation, aPayment, FAILURE, newHash } from '../../support/domain.js';

const command = aCommand();
const key_hash = newHash();
const asked = { client_id: 'default', key_hash, command };
const own = { key_hash, command_hash: command.hash };

describe('another client', () => {
  it.each(['processing', 'succeeded', 'failed', 'canceled'] as const)(
    'learns nothing, whatever it is: %s',
    (status) => {
      const verdict = judgeSecondCharge(aPayment({ status }), [anOperation()], { ...asked, client_id: 'other' });
      expect(verdict).toEqual({ type: 'taken_by_another_client' });
    },
  );
});

describe('the key that made the operation', () => {
  it('with the same command waits while it is in flight, and finds it afterwards', () => {
    const processing = judgeSecondCharge(aPayment(), [anOperation(own)], asked);
    expect(processing).toEqual({ type: 'wait', operation_id: 'charge-1' });
    for (const status of ['succeeded', 'failed', 'requires_action', 'authorized', 'void'] as const) {
      const payment = aPayment({ status: status === 'void' ? 'succeeded' : status });
      expect(judgeSecondCharge(payment, [anOperation({ ...own, status })], asked), status).toEqual({ type: 'exists' });
    }
  });

  it('with another command is reused, also for paying again', () => {
    const operations = [anOperation({ ...own, command_hash: newHash(), status: 'failed' })];
    expect(judgeSecondCharge(aPayment({ status: 'failed' }), operations, asked)).toEqual({ type: 'key_reused' });
  });

  it('never pays again: a late retry of the declined try is no new try', () => {
    const operations = [anOperation({ ...own, status: 'failed' })];
    expect(judgeSecondCharge(aPayment({ status: 'failed' }), operations, asked)).toEqual({ type: 'exists' });
  });

  it('may be the key of a refund or capture: another command', () => {
    const refund = anOperation({ id: 'refund', kind: 'refund', key_hash, command_hash: newHash() });
    const payment = aPayment({ status: 'succeeded' });
    expect(judgeSecondCharge(payment, [anOperation({ status: 'succeeded' }), refund], asked)).toEqual({
      type: 'key_reused',
    });
  });
});

describe('another key', () => {
  it('with the same command waits while the first try is in flight, and finds the payment afterwards', () => {
    expect(judgeSecondCharge(aPayment(), [anOperation()], asked)).toEqual({ type: 'wait', operation_id: 'charge-1' });
    for (const status of ['succeeded', 'authorized', 'requires_action', 'canceled'] as const) {
      const operation = anOperation({ status: status === 'canceled' ? 'failed' : status });
      expect(judgeSecondCharge(aPayment({ status }), [operation], asked), status).toEqual({ type: 'exists' });
    }
  });

  it('with the command of any of its tries finds the payment', () => {
    const operations = [
      anOperation({ status: 'failed' }),
      anOperation({ id: 'charge-2', try_number: 2, status: 'succeeded', command_hash: Buffer.alloc(32, 9) }),
    ];
    const second = { ...asked, command: aCommand({ hash: Buffer.alloc(32, 9), payment_method: 'pm_2' }) };
    expect(judgeSecondCharge(aPayment({ status: 'succeeded' }), operations, second)).toEqual({ type: 'exists' });
    expect(judgeSecondCharge(aPayment({ status: 'succeeded' }), operations, asked)).toEqual({ type: 'exists' });
  });

  it('with another command finds the name taken', () => {
    const other = { ...asked, command: aCommand({ hash: newHash(), amount_minor: 1n }) };
    for (const status of ['processing', 'succeeded', 'failed', 'canceled', 'authorized'] as const) {
      const operation = anOperation({ status: status === 'canceled' ? 'failed' : status });
      expect(judgeSecondCharge(aPayment({ status }), [operation], other), status).toEqual({ type: 'taken' });
    }
  });
});

describe('paying again', () => {
  const failed = aPayment({ status: 'failed', failure: FAILURE });
  const declined = anOperation({ status: 'failed', failure: FAILURE });
  const again = { ...asked, command: aCommand({ hash: newHash(), payment_method: 'pm_other' }) };

  it('is the next try, by any payment method', () => {
    expect(judgeSecondCharge(failed, [declined], again)).toEqual({ type: 'pay_again', try_number: 2 });
    expect(judgeSecondCharge(failed, [declined], asked)).toEqual({ type: 'pay_again', try_number: 2 });
    const third = [declined, anOperation({ id: 'charge-2', try_number: 2, status: 'void' })];
    expect(judgeSecondCharge(failed, third, again)).toEqual({ type: 'pay_again', try_number: 3 });
  });

  it.each([
    ['amount', { amount_minor: 1001n }],
    ['currency', { currency: 'USD' }],
    ['customer', { customer_id: 'other' }],
    ['provider', { provider: 'stripe' }],
    ['way of capturing', { capture: 'manual' }],
  ] as const)('is refused with another %s', (_name, change) => {
    const command = aCommand({ hash: newHash(), ...change });
    expect(judgeSecondCharge(failed, [declined], { ...asked, command })).toEqual({ type: 'taken' });
  });

  it('may bring other words: they are not kept', () => {
    const command = aCommand({ hash: newHash(), description: 'again', metadata: { a: '1' }, order_id: '7' });
    expect(judgeSecondCharge(failed, [declined], { ...asked, command })).toEqual({ type: 'pay_again', try_number: 2 });
  });

  it('is busy while another try is in flight', () => {
    const second = anOperation({ id: 'charge-2', try_number: 2, key_hash: newHash() });
    expect(judgeSecondCharge(aPayment(), [declined, second], again)).toEqual({ type: 'busy' });
    expect(judgeSecondCharge(aPayment(), [declined, second], asked)).toEqual({ type: 'busy' });
  });

  it.each(['capture', 'cancel'] as const)(
    'is busy while a %s of the expired authorization is in flight: one movement at a time',
    (kind) => {
      const pending = anOperation({ id: kind, kind, key_hash: newHash() });
      expect(judgeSecondCharge(failed, [declined, pending], again)).toEqual({ type: 'busy' });
    },
  );

  it('is not for what has not failed', () => {
    const rest: [PaymentStatus, OperationStatus][] = [
      ['succeeded', 'succeeded'],
      ['canceled', 'failed'],
      ['authorized', 'authorized'],
      ['requires_action', 'requires_action'],
    ];
    for (const [status, operation] of rest) {
      const verdict = judgeSecondCharge(aPayment({ status }), [anOperation({ status: operation })], again);
      expect(verdict.type, status).toBe('taken');
    }
  });
});
