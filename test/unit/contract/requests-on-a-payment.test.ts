import { describe, expect, it } from 'vitest';
import { parseCancelCommand, parseCaptureCommand, parseRefundCommand } from '../../../src/contract/requests.js';
import { commandHash } from '../../../src/domain/command-hash.js';
import { OncepayError } from '../../../src/domain/errors.js';

const payment = { id: '019b3c5e-7a10-7000-8000-000000000001', currency: 'EUR' };
const inYen = { ...payment, currency: 'JPY' };
const parsers = { capture: parseCaptureCommand, cancel: parseCancelCommand, refund: parseRefundCommand };

function refusal(run: () => unknown): OncepayError {
  try {
    run();
  } catch (error) {
    if (error instanceof OncepayError) return error;
    throw error;
  }
  throw new Error('was accepted');
}

describe('a capture', () => {
  it.each([undefined, {}])('of all that is authorized: %j', (body) => {
    const hash = commandHash('capture', payment.id, {});
    expect(parseCaptureCommand(body, payment)).toEqual({
      kind: 'capture',
      hash,
      payment_id: payment.id,
      amount_minor: null,
    });
  });

  it("of a part, by the digits of the payment's currency", () => {
    const command = parseCaptureCommand({ amount: '60' }, payment);
    expect(command).toMatchObject({
      amount_minor: 6000n,
      hash: commandHash('capture', payment.id, { amount: '60.00' }),
    });
    expect(parseCaptureCommand({ amount: '60.0' }, payment).hash).toEqual(command.hash);
    expect(parseCaptureCommand({ amount: '60' }, inYen).amount_minor).toBe(60n);
  });
});

describe('a cancel', () => {
  it.each([undefined, {}])('has nothing in it: %j', (body) => {
    const hash = commandHash('cancel', payment.id, {});
    expect(parseCancelCommand(body, payment)).toEqual({ kind: 'cancel', hash, payment_id: payment.id });
  });
});

describe('a refund', () => {
  it('of all that is left', () => {
    const hash = commandHash('refund', payment.id, {});
    expect(parseRefundCommand({}, payment)).toEqual({
      kind: 'refund',
      hash,
      payment_id: payment.id,
      amount_minor: null,
      reason: null,
    });
  });

  it('of a part, with a reason', () => {
    const body = { amount: '33.33', reason: 'Book came damaged' };
    const hash = commandHash('refund', payment.id, body);
    expect(parseRefundCommand(body, payment)).toEqual({
      kind: 'refund',
      hash,
      payment_id: payment.id,
      amount_minor: 3333n,
      reason: body.reason,
    });
  });

  it('needs a body: a lost one must not give back everything', () => {
    expect(refusal(() => parseRefundCommand(undefined, payment)).extra.errors).toEqual([
      { path: '', message: 'is missing; a JSON object is required' },
    ]);
  });

  it.each([['x'.repeat(501)], [null], [1], ['\u0000'], ['\ud800']])('has no reason %j', (reason) => {
    expect(refusal(() => parseRefundCommand({ reason }, payment)).extra.errors).toMatchObject([{ path: '/reason' }]);
  });

  it('has no card number in its reason', () => {
    const error = refusal(() => parseRefundCommand({ reason: 'card 4242424242424242' }, payment));
    expect(error).toMatchObject({ code: 'card_number_rejected', extra: { errors: [{ path: '/reason' }] } });
  });

  it('of one payment and kind is not that of another', () => {
    const hashes = [
      parseRefundCommand({}, payment),
      parseRefundCommand({}, { ...payment, id: '019b3c5e-7a10-7000-8000-000000000002' }),
      parseCaptureCommand({}, payment),
      parseCancelCommand({}, payment),
    ].map(({ hash }) => hash.toString('hex'));
    expect(new Set(hashes).size).toBe(hashes.length);
  });
});

describe.each(['capture', 'refund'] as const)('the amount of a %s', (kind) => {
  it.each([null, '0', '0.00', '-10', '+10', '1e1', '10.001', '', 10, ['10'], '٣', '1 '])('is not %j', (amount) => {
    const error = refusal(() => parsers[kind]({ amount }, payment));
    expect(error).toMatchObject({ code: 'validation_failed', extra: { errors: [{ path: '/amount' }] } });
  });

  it("does not have another currency's digits", () => {
    expect(refusal(() => parsers[kind]({ amount: '10.00' }, inYen)).extra.errors).toMatchObject([{ path: '/amount' }]);
  });
});

describe.each(['capture', 'cancel', 'refund'] as const)('the body of a %s', (kind) => {
  it.each([null, [], '', 'x', 1, true])('is not %j', (body) => {
    expect(refusal(() => parsers[kind](body, payment)).extra.errors).toMatchObject([{ path: '' }]);
  });

  it.each(['currency', 'capture', 'Amount', 'constructor'])('has no member %s', (name) => {
    expect(refusal(() => parsers[kind]({ [name]: 'x' }, payment)).extra.errors).toEqual([
      { path: `/${name}`, message: 'is not a known member' },
    ]);
  });

  it('has no member __proto__', () => {
    expect(refusal(() => parsers[kind](JSON.parse('{"__proto__":{"amount":"1"}}'), payment)).code).toBe(
      'validation_failed',
    );
  });
});
