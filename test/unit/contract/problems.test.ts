import { describe, expect, it } from 'vitest';
import { problemBody, PROBLEMS } from '../../../src/contract/problems.js';
import { Problem } from '../../../src/contract/schemas.js';
import { ERROR_CODES, OncepayError } from '../../../src/domain/errors.js';

/** From the design: which codes belong to which status. */
const CODES_BY_STATUS: Readonly<Record<number, readonly string[]>> = {
  400: [
    'card_number_rejected',
    'idempotency_key_invalid',
    'idempotency_key_missing',
    'malformed_body',
    'validation_failed',
  ],
  401: ['unauthenticated'],
  403: ['forbidden'],
  404: ['not_found'],
  405: ['method_not_allowed'],
  408: ['request_timeout'],
  409: [
    'amount_exceeds_remaining',
    'external_payment_id_taken',
    'idempotency_key_in_progress',
    'idempotency_key_reused',
    'invalid_payment_state',
    'operation_in_progress',
  ],
  413: ['body_too_large'],
  414: ['uri_too_long'],
  415: ['unsupported_media_type'],
  429: ['rate_limited'],
  431: ['headers_too_large'],
  500: ['internal'],
  503: ['unavailable'],
};

describe('the table of problems', () => {
  it('has every code with its status', () => {
    const byStatus: Record<number, string[]> = {};
    for (const code of [...ERROR_CODES].sort()) (byStatus[PROBLEMS[code].status] ??= []).push(code);
    expect(byStatus).toEqual(CODES_BY_STATUS);
  });

  it.each(ERROR_CODES)('explains %s in whole sentences', (code) => {
    const { title, meaning, advice } = PROBLEMS[code];
    expect(title).toMatch(/^[A-Z].*[^.]$/);
    expect(meaning).toMatch(/^[A-Z`].*\.$/);
    expect(advice).toMatch(/^[A-Z`].*\.$/);
  });

  it('never advises a new key while the outcome may be open: that would be a second charge', () => {
    for (const code of [
      'idempotency_key_in_progress',
      'request_timeout',
      'rate_limited',
      'internal',
      'unavailable',
      'operation_in_progress',
    ] as const) {
      expect(PROBLEMS[code]).toMatchObject({ retry: 'yes', retry_key: 'same' });
    }
  });

  it('advises a new key where the old one keeps its answer', () => {
    for (const code of [
      'idempotency_key_reused',
      'external_payment_id_taken',
      'invalid_payment_state',
      'amount_exceeds_remaining',
    ] as const) {
      expect(PROBLEMS[code].retry_key).toBe('new');
    }
  });
});

describe('problemBody', () => {
  it('has the members of RFC 9457 first, then ours', () => {
    const error = new OncepayError('amount_exceeds_remaining', 'Only 20.00 EUR are left.', {
      members: { remaining: '20.00' },
    });
    expect(JSON.stringify(problemBody(error, 'req-1', '/payments/1/refunds'))).toBe(
      '{"type":"/problems/amount_exceeds_remaining","title":"The amount is more than what is left","status":409,"detail":"Only 20.00 EUR are left.",' +
        '"instance":"/payments/1/refunds","code":"amount_exceeds_remaining","request_id":"req-1","remaining":"20.00"}',
    );
  });

  it('lists the errors of a validation', () => {
    const errors = [{ path: '/amount', message: 'is required' }];
    expect(problemBody(new OncepayError('validation_failed', 'x', { errors }), 'r')).toMatchObject({ errors });
  });

  it('shows neither cause nor stack nor the time to wait', () => {
    const error = new OncepayError('unavailable', 'x', { cause: new Error('password'), retry_after_s: 3 });
    expect(Object.keys(problemBody(error, 'r'))).toEqual(['type', 'title', 'status', 'detail', 'code', 'request_id']);
  });

  it.each(ERROR_CODES)('of %s fits the schema', (code) => {
    const members = {
      payment_id: '019b3c5e-7a10-7000-8000-000000000001',
      status_url: '/idempotency-keys/k',
      payment_status: 'failed',
      remaining: '0.00',
    };
    const body = problemBody(new OncepayError(code, 'x', { members }), 'r');
    expect(Problem.parse(body)).toEqual(body);
  });
});
