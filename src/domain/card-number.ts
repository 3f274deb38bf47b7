/** A run of digits with single spaces or dashes inside. Each character is looked at once: no backtracking. */
const DIGIT_RUN = /\d(?:[ -]?\d)*/g;

/** The shortest card number. */
const MIN_LENGTH = 13;
const MAX_LENGTH = 19;

/**
 * Whether a text holds what looks like a card number: a maximal run of ASCII digits (single spaces or dashes inside
 * are skipped) with the prefix and the length of a card scheme and a right check digit (Luhn). The run counts as a
 * whole: a card number inside a longer number is none, so long order numbers pass. Linear in the text's length.
 */
export function containsCardNumber(text: string): boolean {
  if (text.length < MIN_LENGTH) return false;
  for (const [run] of text.matchAll(DIGIT_RUN)) {
    if (run.length >= MIN_LENGTH && isCardNumber(run.replace(/[ -]/g, ''))) return true;
  }
  return false;
}

function isCardNumber(digits: string): boolean {
  if (digits.length < MIN_LENGTH || digits.length > MAX_LENGTH) return false;
  return hasSchemeLength(digits) && passesLuhn(digits);
}

/** Prefix and length by scheme, as docs/idempotency.md lists them for callers. */
function hasSchemeLength(digits: string): boolean {
  const { length } = digits;
  const first2 = Number(digits.slice(0, 2));
  const first4 = Number(digits.slice(0, 4));
  const visa = digits.startsWith('4') && (length === 13 || length === 16 || length === 19);
  const mastercard = length === 16 && ((first2 >= 51 && first2 <= 55) || (first4 >= 2221 && first4 <= 2720));
  const amex = length === 15 && (first2 === 34 || first2 === 37);
  const mir = length >= 16 && first4 >= 2200 && first4 <= 2204;
  const discover = length === 16 && (first4 === 6011 || first2 === 65);
  const jcb = length === 16 && first4 >= 3528 && first4 <= 3589;
  const unionPay = length >= 16 && first2 === 62;
  return visa || mastercard || amex || mir || discover || jcb || unionPay;
}

function passesLuhn(digits: string): boolean {
  let sum = 0;
  for (let i = 0; i < digits.length; i += 1) {
    const digit = digits.charCodeAt(digits.length - 1 - i) - 48;
    const doubled = i % 2 === 1 ? digit * 2 : digit;
    sum += doubled > 9 ? doubled - 9 : doubled;
  }
  return sum % 10 === 0;
}
