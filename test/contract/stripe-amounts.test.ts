import { describe, expect, it } from 'vitest';
import { CURRENCY_DIGITS } from '../../src/domain/currencies.js';
import { parseAmount } from '../../src/domain/money.js';
import { fromStripeAmount, toStripeAmount } from '../../src/providers/stripe/amounts.js';
import { ProviderError } from '../../src/providers/provider.js';

/** Currency, an amount as clients write it, and what Stripe must be told (https://docs.stripe.com/currencies). */
const CASES: readonly (readonly [currency: string, amount: string, stripe: number])[] = [
  // "1000 to charge 10 USD (or any other two-decimal currency)"
  ['USD', '10.00', 1000],
  ['EUR', '0.01', 1],
  // "For example, to charge 500 JPY, provide an amount value of 500": the zero-decimal list
  ...['BIF', 'CLP', 'DJF', 'GNF', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'VND', 'VUV', 'XAF', 'XOF', 'XPF'].map(
    (currency) => [currency, '500', 500] as const,
  ),
  // On the zero-decimal list, although ISO gives it two decimals
  ['MGA', '500.00', 500],
  // "to charge 5 ISK, provide an amount value of 500", and the same of UGX; ISO gives both none
  ['ISK', '5', 500],
  ['UGX', '5', 500],
  // "Stripe treats HUF (TWD) as a zero-decimal currency for payouts, even though you can charge two-decimal amounts"
  ['HUF', '10.45', 1045],
  ['TWD', '800.45', 80045],
  // "5.124 KWD must be rounded to 5120 or 5130": three decimals, the last of them 0
  ...['BHD', 'JOD', 'KWD', 'OMR', 'TND'].map((currency) => [currency, '5.120', 5120] as const),
  // Two decimals for both, where CLDR says none
  ['IDR', '0.50', 50],
  ['COP', '0.50', 50],
];

describe("amounts in Stripe's units", () => {
  it.each(CASES)('%s %s is %d, and back', (currency, amount, stripe) => {
    const minor = parseAmount(amount, currency);
    expect(toStripeAmount(minor, currency)).toBe(stripe);
    expect(fromStripeAmount(stripe, currency)).toBe(minor);
  });

  it('keeps every value from 0.01 to 100.00 exact', () => {
    for (let cents = 1; cents <= 10_000; cents += 1) {
      const text = `${Math.floor(cents / 100)}.${String(cents % 100).padStart(2, '0')}`;
      const minor = parseAmount(text, 'USD');
      expect(toStripeAmount(minor, 'USD')).toBe(cents);
      expect(fromStripeAmount(cents, 'USD')).toBe(minor);
    }
  });

  it('gives every currency that Stripe takes back as it was', () => {
    const taken = [...CURRENCY_DIGITS.keys()].filter(
      (currency) => !['CLF', 'IQD', 'LYD', 'UYI', 'UYW'].includes(currency),
    );
    expect(taken.length).toBeGreaterThan(140);
    for (const currency of taken) {
      for (const minor of [1000n, 12_345_600n]) {
        expect(fromStripeAmount(toStripeAmount(minor, currency), currency), currency).toBe(minor);
      }
    }
  });

  it.each(['IQD', 'LYD', 'CLF', 'UYI', 'UYW', 'XYZ'])(
    'refuses %s, whose digits at Stripe nobody documents',
    (currency) => {
      expect(refusal(() => toStripeAmount(1000n, currency))).toBe('currency_not_supported');
      expect(fromStripeAmount(1000, currency)).toBeUndefined();
    },
  );

  it.each([
    ['KWD', '5.124'],
    ['MGA', '500.20'],
  ])('refuses %s %s, which Stripe can’t express, and rounds nothing', (currency, amount) => {
    expect(refusal(() => toStripeAmount(parseAmount(amount, currency), currency))).toBe('provider_rejected');
  });

  it('refuses what a JavaScript number can’t hold', () => {
    expect(refusal(() => toStripeAmount(9_007_199_254_740_991n, 'UGX'))).toBe('amount_too_large');
  });

  it('has no fact for a fraction of a currency without any', () => {
    expect(fromStripeAmount(550, 'ISK')).toBeUndefined();
    expect(fromStripeAmount(5.5, 'USD')).toBeUndefined();
  });
});

function refusal(run: () => unknown): string | undefined {
  try {
    run();
  } catch (error) {
    if (error instanceof ProviderError && error.kind === 'refused') return error.failure?.code;
    throw error;
  }
  return undefined;
}
