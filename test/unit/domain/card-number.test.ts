import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { containsCardNumber } from '../../../src/domain/card-number.js';

/** Prefixes by scheme, as the contract lists them, each with the lengths that belong to it. */
const SCHEMES: readonly (readonly [prefix: string, lengths: readonly number[]])[] = [
  ['4', [13, 16, 19]],
  ...['51', '55', '2221', '2720', '2500'].map((prefix) => [prefix, [16]] as const),
  ...['34', '37'].map((prefix) => [prefix, [15]] as const),
  ...['2200', '2204'].map((prefix) => [prefix, [16, 17, 18, 19]] as const),
  ...['6011', '65'].map((prefix) => [prefix, [16]] as const),
  ...['3528', '3589'].map((prefix) => [prefix, [16]] as const),
  ['62', [16, 17, 18, 19]],
];

/** Counted from the definition (double every second digit from the right), apart from the code under test. */
function luhnSum(digits: string): number {
  return Array.from(digits)
    .reverse()
    .map((digit, i) =>
      i % 2 === 0 ? Number(digit) : Array.from(String(Number(digit) * 2)).reduce((sum, d) => sum + Number(d), 0),
    )
    .reduce((sum, digit) => sum + digit, 0);
}

function withCheckDigit(digits: string): string {
  return `${digits}${(10 - (luhnSum(`${digits}0`) % 10)) % 10}`;
}

const card = fc.constantFrom(...SCHEMES).chain(([prefix, lengths]) =>
  fc.constantFrom(...lengths).chain((length) =>
    fc
      .string({
        unit: fc.constantFrom(...Array.from('0123456789')),
        minLength: length - prefix.length - 1,
        maxLength: length - prefix.length - 1,
      })
      .map((body) => withCheckDigit(prefix + body)),
  ),
);

describe('containsCardNumber', () => {
  it.each([
    ['Visa', '4242424242424242'],
    ['Visa, 13 digits', '4222222222222'],
    ['Mastercard', '5555555555554444'],
    ['Mastercard, new range', '2223003122003222'],
    ['Amex', '378282246310005'],
    ['Mir', '2200000000000004'],
    ['Discover', '6011111111111117'],
    ['JCB', '3530111333300000'],
    ['UnionPay', '6200000000000005'],
    ['with spaces', '4242 4242 4242 4242'],
    ['with dashes', '4242-4242-4242-4242'],
    ['with both', '4242 4242-4242 4242'],
    ['a separator after each digit', Array.from('4242424242424242').join(' ')],
    ['in a sentence', 'my card 4242424242424242, please'],
    ['glued to letters', 'tok4242424242424242x'],
    ['after a double space', '12  4242424242424242'],
    ['the second of two', '1234567890123 x 4242424242424242'],
    ['over a point', '1.4242424242424242'],
  ])('sees %s', (_name, text) => {
    expect(containsCardNumber(text)).toBe(true);
  });

  it.each([
    ['a wrong check digit', '4242424242424241'],
    ['a Visa prefix with 14 digits', withCheckDigit('4242424242424')],
    ['with 15 digits', withCheckDigit('42424242424242')],
    ['with 17 digits', withCheckDigit('4242424242424242')],
    ['with 18 digits', withCheckDigit('42424242424242424')],
    ['Amex with 16 digits', withCheckDigit('378282246310005')],
    ['Mastercard with 17 digits', withCheckDigit('5555555555554444')],
    ['just below the ranges of Mastercard', withCheckDigit('222000000000000')],
    ['just above', withCheckDigit('272100000000000')],
    ['just above Mir', withCheckDigit('220500000000000')],
    ['just below JCB', withCheckDigit('352700000000000')],
    ['just above JCB', withCheckDigit('359000000000000')],
    ['prefix 50', withCheckDigit('500000000000000')],
    ['prefix 56', withCheckDigit('560000000000000')],
    ['another prefix', withCheckDigit('900000000000000')],
    ['6012', withCheckDigit('601200000000000')],
    ['20 digits', withCheckDigit('4242424242424242424')],
    ['UnionPay with 20 digits', withCheckDigit('6200000000000000000')],
    ['Mir with 20 digits', withCheckDigit('2200000000000000000')],
    ['a card number inside a longer number', '4242424242424242000'],
    ['a number before it, over a single space', '12 4242424242424242'],
    ['double spaces inside', '4242  4242  4242  4242'],
    ['points inside', '4242.4242.4242.4242'],
    ['a space and a dash together', '4242 -4242 4242 4242'],
    ['other digits', '４２４２４２４２４２４２４２４２'],
    ['a phone number', '+49 30 1234567'],
    ['an IBAN', 'DE89 3704 0044 0532 0130 00'],
    ['a UUID', '019b3c5e-7a10-7000-8000-000000000001'],
    ['nothing', ''],
    ['an order number', 'order 10012345678901'],
  ])('passes %s', (_name, text) => {
    expect(containsCardNumber(text)).toBe(false);
  });

  it('sees every card number of every scheme, however it is grouped and whatever stands around', () => {
    const around = fc.string({ unit: fc.constantFrom('a', 'é', '.', ':', '  ', '#') });
    const separator = fc.constantFrom('', ' ', '-');
    fc.assert(
      fc.property(
        card,
        around,
        around,
        fc.array(separator, { minLength: 20, maxLength: 20 }),
        (digits, before, after, separators) => {
          const grouped = Array.from(digits)
            .map((digit, i) => (i === 0 ? digit : `${separators[i] ?? ''}${digit}`))
            .join('');
          expect(containsCardNumber(`${before}${grouped}${after}`)).toBe(true);
        },
      ),
    );
  });

  it('passes every one of them with another check digit', () => {
    fc.assert(
      fc.property(card, fc.integer({ min: 1, max: 9 }), (digits, step) => {
        const other = (Number(digits.at(-1)) + step) % 10;
        expect(containsCardNumber(`${digits.slice(0, -1)}${other}`)).toBe(false);
      }),
    );
  });

  it('takes time in proportion to the text, also for hostile ones', () => {
    const hostile = ['1', '1 ', '1-', '1 -', '1  ', '4242424242424241 x'].map((part) =>
      part.repeat(400_000 / part.length),
    );
    const started = performance.now();
    for (const text of hostile) containsCardNumber(text);
    // A quadratic search would need minutes.
    expect(performance.now() - started).toBeLessThan(2000);
  });
});
