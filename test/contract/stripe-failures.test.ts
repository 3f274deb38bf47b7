import { describe, expect, it } from 'vitest';
import { FAILURE_CODES } from '../../src/domain/payment.js';
import { failureOf, type StripeProblem } from '../../src/providers/stripe/failures.js';

/** https://docs.stripe.com/declines/codes: every code that it lists. */
const DECLINE_CODES = `approve_with_id authentication_required call_issuer card_not_supported card_velocity_exceeded
  currency_not_supported do_not_honor do_not_try_again duplicate_transaction expired_card fraudulent generic_decline
  incorrect_address incorrect_cvc incorrect_number incorrect_pin incorrect_zip insufficient_funds invalid_account
  invalid_amount invalid_cvc invalid_expiry_month invalid_expiry_year invalid_number invalid_pin issuer_not_available
  lost_card merchant_blacklist mobile_device_authentication_required new_account_information_available no_action_taken
  not_permitted offline_pin_required online_or_offline_pin_required pickup_card pin_try_exceeded processing_error
  reenter_transaction restricted_card revocation_of_all_authorizations revocation_of_authorization security_violation
  service_not_allowed stolen_card stop_payment_order testmode_decline transaction_not_allowed try_again_later
  withdrawal_count_limit_exceeded`.split(/\s+/);

describe('failure codes', () => {
  it('every decline code of Stripe’s has one of ours', () => {
    for (const decline_code of DECLINE_CODES) {
      const failure = failureOf({ type: 'card_error', code: 'card_declined', decline_code, message: 'No.' });
      expect(FAILURE_CODES, decline_code).toContain(failure.code);
      expect(failure.code, decline_code).not.toBe('provider_rejected');
    }
  });

  it.each(['lost_card', 'stolen_card', 'pickup_card', 'merchant_blacklist', 'do_not_honor', 'something_new'])(
    '%s is shown as nothing but a decline',
    (decline_code) => {
      expect(failureOf({ type: 'card_error', code: 'card_declined', decline_code }).code).toBe('card_declined');
    },
  );

  it.each<[StripeProblem, string]>([
    [{ type: 'card_error', code: 'incorrect_zip', param: 'payment_method' }, 'card_declined'],
    [{ type: 'invalid_request_error', code: 'resource_missing', param: 'payment_method' }, 'payment_method_invalid'],
    [{ type: 'invalid_request_error', param: 'payment_method_data[card]' }, 'payment_method_invalid'],
    [{ type: 'invalid_request_error', code: 'payment_method_unactivated' }, 'payment_method_invalid'],
    [{ type: 'invalid_request_error', code: 'payment_method_currency_mismatch' }, 'currency_not_supported'],
    [{ type: 'invalid_request_error', code: 'payment_intent_authentication_failure' }, 'authentication_failed'],
    [{ type: 'invalid_request_error', code: 'amount_too_small', param: 'amount' }, 'amount_too_small'],
    [{ type: 'invalid_request_error', code: 'amount_too_large', param: 'amount' }, 'amount_too_large'],
    [{ type: 'invalid_request_error', code: 'charge_expired_for_capture' }, 'authorization_expired'],
    [{ type: 'invalid_request_error', code: 'parameter_unknown', param: 'payment_methods' }, 'provider_rejected'],
    [{ type: 'invalid_request_error' }, 'provider_rejected'],
    [{}, 'provider_rejected'],
  ])('%j is %s', (problem, code) => {
    expect(failureOf(problem).code).toBe(code);
  });

  it('the message is Stripe’s, or the code; not without end', () => {
    expect(failureOf({ message: ' Your card was declined. ' }).message).toBe('Your card was declined.');
    expect(failureOf({ code: 'card_declined', decline_code: 'do_not_honor' }).message).toBe('Stripe: do_not_honor');
    expect(failureOf({}).message).toBe('Stripe: no reason given');
    expect(failureOf({ message: 'x'.repeat(5000) }).message).toHaveLength(301);
  });
});
