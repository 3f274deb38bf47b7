import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CURRENCY_DIGITS } from '../../../src/domain/currencies.js';
import { AmountError, currencyDigits, formatAmount, MAX_AMOUNT_MINOR, parseAmount } from '../../../src/domain/money.js';

const currency = fc.constantFrom(...CURRENCY_DIGITS.keys());

describe('the table of currencies', () => {
  it.each([
    [0, 'BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF'],
    [1, ''],
    [3, 'BHD IQD JOD KWD LYD OMR TND'],
    [4, 'CLF UYW'],
  ])('has these with %i digits, and no others', (digits, codes) => {
    const found = [...CURRENCY_DIGITS].filter(([, itsDigits]) => itsDigits === digits).map(([code]) => code);
    expect(found.join(' ')).toBe(codes);
  });

  it.each([
    'EUR',
    'USD',
    'GBP',
    'CHF',
    'RUB',
    'HUF',
    'IDR',
    'TWD',
    'IRR',
    'LAK',
    'MGA',
    'MRU',
    'XCG',
    'ZWG',
    'SLE',
    'VED',
  ])('has %s with two digits', (code) => {
    expect(currencyDigits(code)).toBe(2);
  });

  it.each(['XXX', 'XTS', 'XAU', 'XAG', 'XPT', 'XPD', 'XDR', 'XUA', 'XSU', 'XAD', 'XBA', 'XBB', 'XBC', 'XBD'])(
    'does not have %s, which is no money to charge',
    (code) => {
      expect(currencyDigits(code)).toBeUndefined();
    },
  );

  it.each([
    'BGN',
    'HRK',
    'ANG',
    'CUC',
    'ZWL',
    'SLL',
    'DEM',
    'usd',
    'Usd',
    'USD ',
    ' USD',
    '',
    'US',
    'USDT',
    '__proto__',
  ])('does not have %j', (code) => {
    expect(currencyDigits(code)).toBeUndefined();
  });

  it('has 164 three-letter codes, each once', () => {
    expect(CURRENCY_DIGITS.size).toBe(164);
    expect([...CURRENCY_DIGITS.keys()].every((code) => /^[A-Z]{3}$/.test(code))).toBe(true);
  });
});

describe('parseAmount', () => {
  it.each([
    ['10', 'EUR', 1000n],
    ['10.0', 'EUR', 1000n],
    ['10.00', 'EUR', 1000n],
    ['0.01', 'EUR', 1n],
    ['00010.5', 'EUR', 1050n],
    ['33.33', 'EUR', 3333n],
    ['500', 'JPY', 500n],
    ['0.001', 'KWD', 1n],
    ['1.2345', 'CLF', 12345n],
    ['90071992547409.91', 'EUR', MAX_AMOUNT_MINOR],
    ['999999999999999', 'JPY', 999999999999999n],
  ])('reads %s %s as %s', (text, code, minor) => {
    expect(parseAmount(text, code)).toBe(minor);
  });

  it.each([
    '1e3',
    '0x10',
    '+5',
    '-5',
    '.5',
    '5.',
    '1,000',
    '1 ',
    ' 1',
    '-0',
    '0',
    '0.0',
    '0.00',
    '',
    ' ',
    'NaN',
    'Infinity',
    '-Infinity',
    '٣',
    '１２',
    '1_000',
    '1.000',
    '10.001',
    '10.00.00',
    '1..5',
    '12345678901234567890',
    '1234567890123456',
    '10\n',
    '\n10',
    '10.00\n',
    '10\u0000',
    '1\u00a0000',
    '90071992547409.92',
    '999999999999999.99',
    'EUR 10',
    '10 EUR',
    '1/2',
    '0b1',
    '0o7',
    '1n',
    '½',
    '٫5',
    'null',
  ])('refuses %j', (text) => {
    expect(() => parseAmount(text, 'EUR')).toThrow(AmountError);
  });

  it.each([
    ['500.50', 'JPY'],
    ['500.0', 'JPY'],
    ['500.', 'JPY'],
    ['1234567890123456', 'JPY'],
    ['0000000000000500', 'JPY'],
    ['1.0001', 'KWD'],
    ['1.00001', 'CLF'],
    ['10.00', 'XXX'],
    ['10.00', 'eur'],
  ])('refuses %s %s', (text, code) => {
    expect(() => parseAmount(text, code)).toThrow(AmountError);
  });

  it('says what is wrong without repeating the text', () => {
    expect(() => parseAmount('<script>', 'JPY')).toThrow(/^must be .*without a decimal point \(JPY has no decimals\)/);
    expect(() => parseAmount('1.234', 'EUR')).toThrow(/at most 2 decimals \(EUR\), such as "10\.00"$/);
    expect(() => parseAmount('1.2345', 'KWD')).toThrow(/such as "10\.000"$/);
    expect(() => parseAmount('0.00', 'EUR')).toThrow(/^must be greater than zero$/);
    expect(() => parseAmount('999999999999999', 'EUR')).toThrow(/^must be at most 90071992547409\.91$/);
  });

  it('reads back what formatAmount writes, for every amount that is allowed', () => {
    fc.assert(
      fc.property(currency, fc.bigInt(1n, MAX_AMOUNT_MINOR), (code, minor) => {
        const text = formatAmount(minor, code);
        // 16 digits before the point (yen above 10^15) are more than the way in takes.
        fc.pre((text.split('.')[0] ?? '').length <= 15);
        expect(parseAmount(text, code)).toBe(minor);
      }),
    );
  });

  it('takes trailing zeros and leading zeros for the same amount', () => {
    fc.assert(
      fc.property(currency, fc.bigInt(1n, 10n ** 9n), fc.nat(3), (code, minor, zeros) => {
        const text = formatAmount(minor, code);
        const shortest = text.includes('.') ? text.replace(/\.?0+$/, '') : text;
        expect(parseAmount(shortest, code)).toBe(minor);
        expect(parseAmount('0'.repeat(zeros) + text, code)).toBe(minor);
      }),
    );
  });

  it('takes nothing but digits with at most one point, whatever the text', () => {
    const nearlyAmount = fc.string({
      unit: fc.constantFrom(...Array.from('0123456789.,+-eExX _٣１\n')),
      maxLength: 20,
    });
    fc.assert(
      fc.property(fc.oneof(nearlyAmount, fc.string({ unit: 'binary' })), currency, (text, code) => {
        const digits = currencyDigits(code) ?? 0;
        const [whole = '', decimals, ...rest] = text.split('.');
        const ascii = (part: string) => Array.from(part).every((character) => character >= '0' && character <= '9');
        const wellFormed =
          rest.length === 0 &&
          ascii(whole) &&
          whole.length >= 1 &&
          whole.length <= 15 &&
          (decimals === undefined || (ascii(decimals) && decimals.length >= 1 && decimals.length <= digits));
        const minor = wellFormed ? BigInt(whole + (decimals ?? '').padEnd(digits, '0')) : 0n;
        if (minor > 0n && minor <= MAX_AMOUNT_MINOR) expect(parseAmount(text, code)).toBe(minor);
        else expect(() => parseAmount(text, code)).toThrow(AmountError);
      }),
      { numRuns: 2000 },
    );
  });
});

describe('formatAmount', () => {
  it.each([
    [0n, 'EUR', '0.00'],
    [1n, 'EUR', '0.01'],
    [10n, 'EUR', '0.10'],
    [123456n, 'EUR', '1234.56'],
    [0n, 'JPY', '0'],
    [500n, 'JPY', '500'],
    [7n, 'KWD', '0.007'],
    [7n, 'CLF', '0.0007'],
    [MAX_AMOUNT_MINOR, 'EUR', '90071992547409.91'],
    [-5n, 'EUR', '-0.05'],
    [-1234n, 'EUR', '-12.34'],
    [-5n, 'JPY', '-5'],
  ])('writes %s %s as %s', (minor, code, text) => {
    expect(formatAmount(minor, code)).toBe(text);
  });

  it('always writes exactly the digits of the currency', () => {
    fc.assert(
      fc.property(currency, fc.bigInt(0n, MAX_AMOUNT_MINOR), (code, minor) => {
        const [, decimals = ''] = formatAmount(minor, code).split('.');
        expect(decimals.length).toBe(currencyDigits(code));
      }),
    );
  });

  it('refuses a currency that it does not know', () => {
    expect(() => formatAmount(1n, 'XXX')).toThrow(AmountError);
  });
});
