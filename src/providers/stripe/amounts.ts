import { currencyDigits } from '../../domain/money.js';
import { ProviderError } from '../provider.js';

/**
 * How Stripe counts money (https://docs.stripe.com/currencies, "Specify amounts in API requests" and "Special cases"):
 * in the currency's smallest unit, where Stripe's idea of that unit is not always ISO 4217's. Two decimals unless
 * listed here. UGX stands on Stripe's zero-decimal list *and* among its special cases; the special case governs.
 */
const ZERO_DECIMAL = new Set('BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF'.split(' '));
/** Thousandths, of which the last digit must be 0: "the least-significant (last) digit to be 0", payments and refunds. */
const THREE_DECIMAL = new Set('BHD JOD KWD OMR TND'.split(' '));
/** No decimals any more, but still written with two, which must be 00: 5 ISK are 500. */
const WHOLE_BUT_TIMES_100 = new Set('ISK UGX'.split(' '));

/** How many of Stripe's digits a currency has; undefined: Stripe's documentation does not say how to write it. */
function stripeDigits(currency: string): number | undefined {
  if (ZERO_DECIMAL.has(currency)) return 0;
  if (THREE_DECIMAL.has(currency)) return 3;
  if (WHOLE_BUT_TIMES_100.has(currency)) return 2;
  // Two decimals is Stripe's rule for the rest. Where ISO says otherwise (IQD, LYD, CLF …), Stripe does not take the
  // currency, and a guess could be wrong by a factor of ten: better refused.
  return currencyDigits(currency) === 2 ? 2 : undefined;
}

/** What Stripe's amounts of a currency must be multiples of. */
function stripeStep(currency: string): bigint {
  if (THREE_DECIMAL.has(currency)) return 10n;
  return WHOLE_BUT_TIMES_100.has(currency) ? 100n : 1n;
}

/**
 * ISO minor units as Stripe's `amount`. Nothing is rounded: what Stripe can't express is refused.
 * @throws ProviderError `refused`: `currency_not_supported`, or `provider_rejected` where the amount has more digits
 *   than Stripe takes for this currency, or `amount_too_large`
 */
export function toStripeAmount(amount_minor: bigint, currency: string): number {
  const iso = currencyDigits(currency);
  const digits = stripeDigits(currency);
  if (iso === undefined || digits === undefined) {
    throw refuse('currency_not_supported', `Stripe does not take ${currency}.`);
  }
  const scaled = digits >= iso ? amount_minor * 10n ** BigInt(digits - iso) : shrink(amount_minor, iso - digits);
  if (scaled === undefined || scaled % stripeStep(currency) !== 0n) {
    throw refuse('provider_rejected', `Stripe takes ${currency} only in steps of ${smallestStep(currency)}.`);
  }
  if (scaled > BigInt(Number.MAX_SAFE_INTEGER)) throw refuse('amount_too_large', 'The amount is too large for Stripe.');
  return Number(scaled);
}

/**
 * Stripe's `amount` as ISO minor units: the inverse of `toStripeAmount`. Undefined: no amount of a currency that we
 * know, or one that ISO's digits can't express.
 */
export function fromStripeAmount(amount: number, currency: string): bigint | undefined {
  const iso = currencyDigits(currency);
  const digits = stripeDigits(currency);
  if (iso === undefined || digits === undefined || !Number.isSafeInteger(amount)) return undefined;
  return digits > iso ? shrink(BigInt(amount), digits - iso) : BigInt(amount) * 10n ** BigInt(iso - digits);
}

function shrink(amount: bigint, digits: number): bigint | undefined {
  const factor = 10n ** BigInt(digits);
  return amount % factor === 0n ? amount / factor : undefined;
}

function smallestStep(currency: string): string {
  return THREE_DECIMAL.has(currency) ? '0.010' : '1';
}

function refuse(
  code: 'currency_not_supported' | 'provider_rejected' | 'amount_too_large',
  message: string,
): ProviderError {
  return new ProviderError('refused', code, message, { failure: { code, message } });
}
