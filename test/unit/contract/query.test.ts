import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeCursor } from '../../../src/contract/cursor.js';
import { parsePaymentListQuery, paymentCursor, refuseQuery, type PaymentFilters } from '../../../src/contract/query.js';
import { OncepayError } from '../../../src/domain/errors.js';

const noFilters: PaymentFilters = {
  status: null,
  customer_id: null,
  external_payment_id: null,
  provider: null,
  created_from: null,
  created_to: null,
};
const position = { created_at: '2026-01-31T10:00:00.123456Z', id: '019b3c5e-7a10-7000-8000-000000000001' };

function refusedPaths(query: unknown): string[] {
  try {
    parsePaymentListQuery(query);
  } catch (error) {
    if (!(error instanceof OncepayError)) throw error;
    expect(error.code).toBe('validation_failed');
    return (error.extra.errors ?? []).map(({ path }) => path);
  }
  return [];
}

describe('parsePaymentListQuery', () => {
  it('has defaults', () => {
    expect(parsePaymentListQuery({})).toEqual({ filters: noFilters, limit: 20, after: null });
  });

  it('reads every parameter', () => {
    const query = {
      status: 'requires_action',
      customer_id: 'customer-42',
      external_payment_id: 'order-1001',
      provider: 'stripe',
      created_from: '2026-01-01T00:00:00+02:00',
      created_to: '2026-02-01t00:00:00.5z',
      limit: '100',
    };
    const { status, customer_id, external_payment_id, provider } = query;
    expect(parsePaymentListQuery(query)).toEqual({
      filters: {
        status,
        customer_id,
        external_payment_id,
        provider,
        created_from: '2025-12-31T22:00:00.000000Z',
        created_to: '2026-02-01T00:00:00.500000Z',
      },
      limit: 100,
      after: null,
    });
  });

  it.each(['1', '9', '10', '99', '100'])('takes the limit %s', (limit) => {
    expect(parsePaymentListQuery({ limit }).limit).toBe(Number(limit));
  });

  it.each([
    '',
    ' ',
    '0',
    '00',
    '01',
    '101',
    '1000',
    '-1',
    '+5',
    ' 5',
    '5 ',
    '1e1',
    '0x10',
    '1.0',
    '1,0',
    '1_0',
    '５',
    '٥',
    'NaN',
    'Infinity',
    '1e999',
    '5\n',
    '5\u0000',
    5,
    null,
    ['5'],
    ['5', '5'],
  ])('refuses the limit %j', (limit) => {
    expect(refusedPaths({ limit })).toEqual(['query/limit']);
  });

  it.each([
    ['status', ''],
    ['status', 'Succeeded'],
    ['status', 'paid'],
    ['status', 'constructor'],
    ['status', 'failed,succeeded'],
    ['status', ['failed', 'failed']],
    ['customer_id', ''],
    ['customer_id', 'x'.repeat(65)],
    ['customer_id', '\u0000'],
    ['customer_id', '\ud800'],
    ['customer_id', ['a', 'b']],
    ['external_payment_id', ''],
    ['external_payment_id', 'x'.repeat(129)],
    ['external_payment_id', 'é'],
    ['external_payment_id', ' a'],
    ['external_payment_id', ['a', 'a']],
    ['provider', ''],
    ['provider', 'Stripe'],
    ['provider', '../x'],
    ['provider', ['a', 'b']],
    ['created_from', ''],
    ['created_from', '2026-01-31'],
    ['created_from', '2026-01-31T10:00:00'],
    ['created_from', '2026-01-31T10:00:00 02:00'],
    ['created_from', '2026-02-30T10:00:00Z'],
    ['created_from', '1767225600'],
    ['created_from', 'now'],
    ['created_from', 'infinity'],
    ['created_from', ['2026-01-31T10:00:00Z', '2026-01-31T10:00:00Z']],
    ['created_to', ''],
    ['created_to', 'tomorrow'],
    ['cursor', ''],
    ['cursor', 'x'],
    ['cursor', 'x'.repeat(256)],
    ['cursor', 'x'.repeat(60_000)],
    ['cursor', '\u0000'],
    ['cursor', ['a', 'b']],
  ])('refuses %s %j', (name, value) => {
    expect(refusedPaths({ [name]: value })).toEqual([`query/${name}`]);
  });

  it.each(['Limit', 'limit[]', 'page', 'client_id', '__proto__', 'constructor', '', 'a/b'])(
    'refuses the unknown parameter %j',
    (name) => {
      const query = Object.assign(Object.create(null) as object, Object.fromEntries([[name, 'x']]));
      expect(refusedPaths(query)).toEqual([`query/${name.replace('/', '~1')}`]);
    },
  );

  it('tells all errors at once', () => {
    expect(refusedPaths({ limit: '0', status: 'x', nonsense: '1' }).sort()).toEqual([
      'query/limit',
      'query/nonsense',
      'query/status',
    ]);
  });

  it('refuses a span of time that ends before it begins', () => {
    const span = { created_from: '2026-01-31T10:00:00.000001Z', created_to: '2026-01-31T10:00:00Z' };
    expect(refusedPaths(span)).toEqual(['query/created_to']);
    expect(refusedPaths({ ...span, created_to: span.created_from })).toEqual([]);
    expect(refusedPaths({ ...span, created_to: '2026-01-31T12:00:00.000001+02:00' })).toEqual([]);
  });
});

describe('a cursor', () => {
  const filtered = parsePaymentListQuery({ status: 'failed', customer_id: 'customer-42' });

  it('leads back to where the page ended, whatever the limit', () => {
    const cursor = paymentCursor(filtered.filters, position);
    expect(cursor).toMatch(/^[\w-]+$/);
    expect(parsePaymentListQuery({ status: 'failed', customer_id: 'customer-42', cursor, limit: '7' })).toEqual({
      ...filtered,
      after: position,
      limit: 7,
    });
  });

  it('keeps microseconds', () => {
    const later = { ...position, created_at: '2026-01-31T10:00:00.123457Z' };
    expect(parsePaymentListQuery({ cursor: paymentCursor(noFilters, later) }).after).toEqual(later);
  });

  it('fits filters that say the same time in other words', () => {
    const from = parsePaymentListQuery({ created_from: '2026-01-01T00:00:00Z' });
    const cursor = paymentCursor(from.filters, position);
    expect(parsePaymentListQuery({ created_from: '2026-01-01T02:00:00.000+02:00', cursor }).after).toEqual(position);
  });

  it.each([
    [{}],
    [{ status: 'failed' }],
    [{ status: 'succeeded', customer_id: 'customer-42' }],
    [{ status: 'failed', external_payment_id: 'customer-42' }],
    [{ status: 'failed', customer_id: 'customer-42', provider: 'sandbox' }],
    [{ status: 'failed', customer_id: 'customer-42', created_from: '2020-01-01T00:00:00Z' }],
    [{ status: 'failed', customer_id: 'customer-42', created_to: '2030-01-01T00:00:00Z' }],
  ])('of one list is refused by the list %j', (query) => {
    expect(refusedPaths({ ...query, cursor: paymentCursor(filtered.filters, position) })).toEqual(['query/cursor']);
  });

  it('is refused when anything in it was changed', () => {
    const cursor = paymentCursor(noFilters, position);
    const letter = fc.constantFrom(
      ...Array.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/= .'),
    );
    fc.assert(
      fc.property(fc.nat(cursor.length - 1), letter, (at, other) => {
        const changed = cursor.slice(0, at) + other + cursor.slice(at + 1);
        expect(refusedPaths({ cursor: changed })).toEqual(changed === cursor ? [] : ['query/cursor']);
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    ['cut', (cursor: string) => cursor.slice(0, -1)],
    ['longer', (cursor: string) => `${cursor}A`],
    ['padded', (cursor: string) => `${cursor}=`],
    ['twice', (cursor: string) => cursor + cursor],
    ['lower case', (cursor: string) => cursor.toLowerCase()],
    ['decoded', (cursor: string) => Buffer.from(cursor, 'base64url').toString('latin1')],
  ])('is refused %s', (_name, change) => {
    expect(refusedPaths({ cursor: change(paymentCursor(noFilters, position)) })).toEqual(['query/cursor']);
  });

  it('is refused with a time that is none, even with the right check value', () => {
    for (const created_at of [
      '2026-13-31T10:00:00.123456Z',
      '2026-02-30T10:00:00.123456Z',
      '0000-01-01T00:00:00.000000Z',
      '2026-01-31T25:00:00.123456Z',
    ]) {
      expect(refusedPaths({ cursor: paymentCursor(noFilters, { ...position, created_at }) })).toEqual(['query/cursor']);
    }
  });

  it('of a list of something else is refused', () => {
    expect(refusedPaths({ cursor: encodeCursor(position, ['refunds']) })).toEqual(['query/cursor']);
  });
});

describe('refuseQuery', () => {
  it('passes no parameters, and nothing else', () => {
    expect(() => refuseQuery({})).not.toThrow();
    expect(() => refuseQuery(Object.create(null))).not.toThrow();
    expect(() => refuseQuery({ verbose: '1' })).toThrow(/^query\/verbose is not a known query parameter\.$/);
  });
});
