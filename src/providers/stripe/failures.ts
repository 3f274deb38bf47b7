import type { Failure, FailureCode } from '../../domain/payment.js';

/**
 * Stripe's decline codes (https://docs.stripe.com/declines/codes) and the error codes that end an attempt
 * (https://docs.stripe.com/error-codes) in our closed list. What is not here is `card_declined` where a bank or Stripe
 * declined a payment method, and `provider_rejected` where Stripe refused a request: both are always true.
 * `lost_card`, `stolen_card`, `pickup_card` and `merchant_blacklist` are left out on purpose: Stripe asks not to show
 * them to the customer as anything but a decline.
 */
const FAILURE_OF_CODE: ReadonlyMap<string, FailureCode> = new Map<string, FailureCode>([
  ['insufficient_funds', 'insufficient_funds'],
  ['expired_card', 'expired_card'],
  ['invalid_expiry_month', 'expired_card'],
  ['invalid_expiry_year', 'expired_card'],
  ['incorrect_cvc', 'incorrect_cvc'],
  ['invalid_cvc', 'incorrect_cvc'],
  ['incorrect_number', 'incorrect_number'],
  ['invalid_number', 'incorrect_number'],
  ['invalid_account', 'payment_method_invalid'],
  ['authentication_required', 'authentication_failed'],
  ['payment_intent_authentication_failure', 'authentication_failed'],
  ['setup_intent_authentication_failure', 'authentication_failed'],
  ['mobile_device_authentication_required', 'authentication_failed'],
  ['offline_pin_required', 'authentication_failed'],
  ['online_or_offline_pin_required', 'authentication_failed'],
  ['incorrect_pin', 'authentication_failed'],
  ['invalid_pin', 'authentication_failed'],
  ['fraudulent', 'fraud_suspected'],
  ['highest_risk_level', 'fraud_suspected'],
  ['elevated_risk_level', 'fraud_suspected'],
  ['card_velocity_exceeded', 'limit_exceeded'],
  ['withdrawal_count_limit_exceeded', 'limit_exceeded'],
  ['pin_try_exceeded', 'limit_exceeded'],
  ['charge_exceeds_source_limit', 'limit_exceeded'],
  ['charge_exceeds_transaction_limit', 'limit_exceeded'],
  ['charge_exceeds_weekly_limit', 'limit_exceeded'],
  ['card_decline_rate_limit_exceeded', 'limit_exceeded'],
  ['amount_too_small', 'amount_too_small'],
  ['amount_too_large', 'amount_too_large'],
  ['invalid_amount', 'limit_exceeded'],
  ['currency_not_supported', 'currency_not_supported'],
  ['payment_method_currency_mismatch', 'currency_not_supported'],
  ['processing_error', 'processing_error'],
  ['issuer_not_available', 'processing_error'],
  ['reenter_transaction', 'processing_error'],
  ['try_again_later', 'processing_error'],
  ['payment_method_provider_timeout', 'processing_error'],
  ['payment_intent_payment_attempt_expired', 'authentication_failed'],
  ['charge_expired_for_capture', 'authorization_expired'],
  ['capture_charge_authorization_expired', 'authorization_expired'],
]);

/** Parameters of ours that name the payment method: an error about one of them is an unusable payment method. */
const PAYMENT_METHOD_PARAM = /^(payment_method|payment_method_data|source)(\[|\.|$)/;
const PAYMENT_METHOD_CODE = /^(payment_method_|token_|payment_intent_(incompatible_payment_method|mandate_invalid))/;

/** What we read of Stripe's `error` object, of `last_payment_error` and of a charge's `failure_*`. All optional. */
export interface StripeProblem {
  readonly type?: string | null | undefined;
  readonly code?: string | null | undefined;
  readonly decline_code?: string | null | undefined;
  readonly param?: string | null | undefined;
  readonly message?: string | null | undefined;
}

/** Why Stripe did not take the money, in our words, with Stripe's sentence (written for customers and developers). */
export function failureOf(problem: StripeProblem): Failure {
  return { code: failureCodeOf(problem), message: safeMessage(problem) };
}

function failureCodeOf(problem: StripeProblem): FailureCode {
  const known = FAILURE_OF_CODE.get(problem.decline_code ?? '') ?? FAILURE_OF_CODE.get(problem.code ?? '');
  if (known) return known;
  if (problem.param === 'currency') return 'currency_not_supported';
  const aboutMethod = PAYMENT_METHOD_PARAM.test(problem.param ?? '') || PAYMENT_METHOD_CODE.test(problem.code ?? '');
  if (problem.type !== 'card_error' && aboutMethod) return 'payment_method_invalid';
  const declined = problem.type === 'card_error' || problem.code === 'card_declined' || Boolean(problem.decline_code);
  return declined ? 'card_declined' : 'provider_rejected';
}

const MAX_MESSAGE_LENGTH = 300;

/** Keys, webhook secrets and client secrets never leave this folder, whatever a message of Stripe's may quote. */
const SECRETS = /\b(?:(?:sk|rk|pk|whsec)_[\w*]+|(?:pi|seti)_\w+_secret_\w+)/g;

/** Stripe's own sentence, without anything secret and not too long; else the code that it gave. */
export function safeMessage(problem: StripeProblem): string {
  const said = problem.message?.trim();
  const text = said ? said : `Stripe: ${problem.decline_code ?? problem.code ?? 'no reason given'}`;
  const shown = text.replace(SECRETS, '[hidden]');
  return shown.length > MAX_MESSAGE_LENGTH ? `${shown.slice(0, MAX_MESSAGE_LENGTH)}…` : shown;
}
