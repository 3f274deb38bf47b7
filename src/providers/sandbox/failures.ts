import type { Failure, FailureCode } from '../../domain/payment.js';

/** What the client reads, by code. The sandbox's codes are ours. */
const MESSAGES: Readonly<Record<FailureCode, string>> = {
  card_declined: 'The card was declined.',
  insufficient_funds: 'The account does not hold enough money.',
  expired_card: 'The card has expired.',
  incorrect_cvc: 'The security code of the card is wrong.',
  incorrect_number: 'The number of the card is wrong.',
  authentication_failed: 'The customer could not be authenticated.',
  fraud_suspected: 'The payment was blocked as a suspected fraud.',
  limit_exceeded: 'The payment exceeds a limit of the card or account.',
  amount_too_small: 'The amount is smaller than the provider allows.',
  amount_too_large: 'The amount is larger than the provider allows.',
  currency_not_supported: 'The payment method does not support the currency.',
  payment_method_invalid: 'The provider does not know the payment method.',
  authorization_expired: 'The authorization expired before it was captured.',
  processing_error: 'The provider could not process the payment.',
  provider_rejected: 'The provider refused the request.',
};

/** Refusals of a request that say more than that it was refused. */
const FAILURE_OF_REFUSAL: ReadonlyMap<string, FailureCode> = new Map<string, FailureCode>([
  ['amount_exceeds_remaining', 'amount_too_large'],
]);

/** A code of the sandbox as a failure; one that is not in our list is `provider_rejected`. */
export function failureOf(code: string | null): Failure {
  const known = isFailureCode(code) ? code : (FAILURE_OF_REFUSAL.get(code ?? '') ?? 'provider_rejected');
  return { code: known, message: MESSAGES[known] };
}

function isFailureCode(code: string | null): code is FailureCode {
  return code !== null && Object.hasOwn(MESSAGES, code);
}
