import { CURRENCY_DIGITS } from './currencies.js';

/** 2^53 − 1: what every JSON reader holds exactly. The database checks the same bound. */
export const MAX_AMOUNT_MINOR = 9007199254740991n;

/** A text that is no amount. The message is for the caller and reads on after the field's name: "must be …". */
export class AmountError extends Error {
  override readonly name = 'AmountError';
}

/** By the currency's digits. `\d` is ASCII only, and `$` is the very end: a newline does not slip through. */
const AMOUNT_PATTERNS: readonly RegExp[] = [0, 1, 2, 3, 4].map((digits) =>
  digits === 0 ? /^\d{1,15}$/ : new RegExp(`^\\d{1,15}(?:\\.\\d{1,${digits}})?$`),
);

/** The digits after the decimal point of a currency; undefined for what is no currency that can be charged. */
export function currencyDigits(currency: string): number | undefined {
  return CURRENCY_DIGITS.get(currency);
}

/**
 * Reads a decimal string as whole minor units: 1–15 digits, then at most as many decimals as the currency has;
 * more than zero, at most `MAX_AMOUNT_MINOR`. The text is checked before anything converts it, so nothing is rounded,
 * and no sign, exponent, space or other alphabet gets through.
 * @throws AmountError with a message for the caller
 */
export function parseAmount(text: string, currency: string): bigint {
  const digits = currencyDigits(currency);
  if (digits === undefined) throw new AmountError('has no known currency');
  if (AMOUNT_PATTERNS[digits]?.test(text) !== true) throw new AmountError(`must be ${amountForm(currency, digits)}`);
  const point = text.indexOf('.');
  const minor =
    point < 0
      ? BigInt(text + '0'.repeat(digits))
      : BigInt(text.slice(0, point) + text.slice(point + 1).padEnd(digits, '0'));
  if (minor === 0n) throw new AmountError('must be greater than zero');
  if (minor > MAX_AMOUNT_MINOR) throw new AmountError(`must be at most ${formatAmount(MAX_AMOUNT_MINOR, currency)}`);
  return minor;
}

/**
 * Writes minor units with exactly the currency's digits: the inverse of `parseAmount`, also for zero and for the
 * negative entries of a ledger.
 * @throws AmountError for an unknown currency (a row can't hold one)
 */
export function formatAmount(minor: bigint, currency: string): string {
  const digits = currencyDigits(currency);
  if (digits === undefined) throw new AmountError('has no known currency');
  if (digits === 0) return minor.toString();
  const sign = minor < 0n ? '-' : '';
  const text = (minor < 0n ? -minor : minor).toString().padStart(digits + 1, '0');
  return `${sign}${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

function amountForm(currency: string, digits: number): string {
  return digits === 0
    ? `a string of 1 to 15 digits without a decimal point (${currency} has no decimals), such as "500"`
    : `a decimal string of 1 to 15 digits with at most ${digits} decimals (${currency}), such as "${'10.'.padEnd(3 + digits, '0')}"`;
}
