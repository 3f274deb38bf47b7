import { randomBytes } from 'node:crypto';

/**
 * Stripe's objects and their lives, as its documentation tells them (each rule names its page). Written for the tests
 * of our adapter, which imports nothing of it, nor it of the adapter.
 */
export type Fields = Readonly<Record<string, string>>;
export type Stored = Record<string, unknown> & { id: string; object: string; metadata: Record<string, string> };

/** An answer of the API: its HTTP status and its body. */
export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/** https://docs.stripe.com/testing#declined-payments, with the answers of https://docs.stripe.com/declines/codes */
const DECLINES: Readonly<Record<string, { code: string; decline_code?: string; message: string }>> = {
  pm_card_visa_chargeDeclined: decline('generic_decline'),
  pm_card_visa_chargeDeclinedInsufficientFunds: decline('insufficient_funds', 'Your card has insufficient funds.'),
  pm_card_visa_chargeDeclinedLostCard: decline('lost_card'),
  pm_card_visa_chargeDeclinedStolenCard: decline('stolen_card'),
  pm_card_visa_chargeDeclinedVelocityLimitExceeded: decline('card_velocity_exceeded'),
  pm_card_visa_chargeDeclinedFraudulent: decline('fraudulent'),
  pm_card_chargeDeclinedExpiredCard: {
    code: 'expired_card',
    decline_code: 'expired_card',
    message: 'Your card has expired.',
  },
  pm_card_chargeDeclinedIncorrectCvc: {
    code: 'incorrect_cvc',
    decline_code: 'incorrect_cvc',
    message: 'Your card’s security code is incorrect.',
  },
  pm_card_chargeDeclinedProcessingError: {
    code: 'processing_error',
    decline_code: 'processing_error',
    message: 'An error occurred while processing your card.',
  },
};

function decline(
  decline_code: string,
  message = 'Your card was declined.',
): { code: string; decline_code: string; message: string } {
  return { code: 'card_declined', decline_code, message };
}

/** An error as https://docs.stripe.com/api/errors has it. */
export function problem(status: number, error: Record<string, unknown>): Answer {
  return { status, body: { error: { doc_url: 'https://docs.stripe.com/error-codes', ...error } } };
}

function newId(prefix: string): string {
  return `${prefix}_3${randomBytes(9).toString('hex')}`;
}

function nowS(): number {
  return Math.floor(Date.now() / 1000);
}

/** Everything that one Stripe account holds, in memory. */
export class StripeObjects {
  readonly #objects = new Map<string, Stored>();
  constructor(readonly livemode: boolean) {}

  all(object: string): Stored[] {
    return [...this.#objects.values()].filter((stored) => stored.object === object);
  }

  find(id: string): Stored | undefined {
    return this.#objects.get(id);
  }

  /** POST /v1/payment_intents with confirm=true. https://docs.stripe.com/api/payment_intents/create */
  createIntent(fields: Fields): Answer {
    const amount = Number(fields.amount);
    const currency = fields.currency ?? '';
    if (currency === 'irr') {
      return problem(400, {
        type: 'invalid_request_error',
        param: 'currency',
        message: `Invalid currency: ${currency}.`,
      });
    }
    // https://docs.stripe.com/currencies#minimum-and-maximum-charge-amounts
    if (currency === 'usd' && amount < 50) {
      return problem(400, {
        type: 'invalid_request_error',
        code: 'amount_too_small',
        param: 'amount',
        message: 'Amount must be at least $0.50 usd',
      });
    }
    const method = fields.payment_method ?? '';
    if (!method.startsWith('pm_card_')) {
      return problem(404, {
        type: 'invalid_request_error',
        code: 'resource_missing',
        param: 'payment_method',
        message: `No such PaymentMethod: '${method}'`,
      });
    }
    const intent: Stored = {
      id: newId('pi'),
      object: 'payment_intent',
      amount,
      amount_capturable: 0,
      amount_received: 0,
      cancellation_reason: null,
      capture_method: fields.capture_method ?? 'automatic_async',
      client_secret: `pi_x_secret_${randomBytes(8).toString('hex')}`,
      created: nowS(),
      currency,
      last_payment_error: null,
      latest_charge: null,
      livemode: this.livemode,
      metadata: metadataOf(fields),
      next_action: null,
      payment_method: method,
      status: 'requires_confirmation',
    };
    this.#objects.set(intent.id, intent);
    return this.#confirm(intent, method, fields);
  }

  #confirm(intent: Stored, method: string, fields: Fields): Answer {
    const declined = DECLINES[method];
    if (declined) return this.#declineWith(intent, declined);
    if (method === 'pm_card_authenticationRequired') return this.#askForAction(intent, fields);
    this.#take(intent);
    return { status: 200, body: intent };
  }

  /** A decline: 402, the intent inside the error, waiting for another payment method. */
  #declineWith(intent: Stored, why: { code: string; decline_code?: string; message: string }): Answer {
    const charge = this.#newCharge(intent, { status: 'failed', captured: false, amount_captured: 0 });
    const error = { type: 'card_error', charge: charge.id, ...why };
    Object.assign(intent, { status: 'requires_payment_method', last_payment_error: error, payment_method: null });
    return problem(402, { ...error, payment_intent: { ...intent } });
  }

  /** https://docs.stripe.com/payments/3d-secure/authentication-flow and `error_on_requires_action`. */
  #askForAction(intent: Stored, fields: Fields): Answer {
    if (fields.error_on_requires_action === 'true') {
      return this.#declineWith(intent, {
        code: 'authentication_required',
        decline_code: 'authentication_required',
        message: 'This payment required an authentication action to complete, but `error_on_requires_action` was set.',
      });
    }
    const return_url = fields.return_url;
    const next_action =
      return_url === undefined
        ? {
            type: 'use_stripe_sdk',
            use_stripe_sdk: { type: 'three_d_secure_redirect', stripe_js: 'https://hooks.stripe.com/x' },
          }
        : {
            type: 'redirect_to_url',
            redirect_to_url: { return_url, url: `https://hooks.stripe.com/redirect/${intent.id}` },
          };
    Object.assign(intent, { status: 'requires_action', next_action });
    return { status: 200, body: intent };
  }

  /** The customer came back from the redirect. */
  completeAction(id: string, succeeds: boolean): void {
    const intent = this.#objects.get(id);
    if (!intent) throw new Error(`no ${id}`);
    intent.next_action = null;
    if (succeeds) this.#take(intent);
    else {
      const last_payment_error = {
        type: 'invalid_request_error',
        code: 'payment_intent_authentication_failure',
        message: 'The provided PaymentMethod has failed authentication.',
      };
      Object.assign(intent, { status: 'requires_payment_method', last_payment_error });
    }
  }

  #take(intent: Stored): void {
    const manual = intent.capture_method === 'manual';
    const amount = intent.amount;
    const charge = this.#newCharge(intent, {
      status: 'succeeded',
      captured: !manual,
      amount_captured: manual ? 0 : amount,
    });
    const state = manual
      ? { status: 'requires_capture', amount_capturable: amount }
      : { status: 'succeeded', amount_received: amount };
    Object.assign(intent, state, { latest_charge: charge.id });
  }

  /** The charge takes over the intent's metadata when it is made. https://docs.stripe.com/metadata */
  #newCharge(intent: Stored, state: Record<string, unknown>): Stored {
    const charge: Stored = {
      id: newId('ch'),
      object: 'charge',
      amount: intent.amount,
      amount_refunded: 0,
      balance_transaction: state.captured === true ? this.#newBalanceTransaction() : null,
      created: nowS(),
      currency: intent.currency,
      livemode: this.livemode,
      metadata: { ...intent.metadata },
      payment_intent: intent.id,
      refunded: false,
      ...state,
    };
    this.#objects.set(charge.id, charge);
    return charge;
  }

  #newBalanceTransaction(): string {
    const transaction: Stored = { id: newId('txn'), object: 'balance_transaction', created: nowS(), metadata: {} };
    this.#objects.set(transaction.id, transaction);
    return transaction.id;
  }

  /**
   * https://docs.stripe.com/api/payment_intents/capture. The uncaptured remainder is released, and shows as a refund of
   * the charge: woocommerce/woocommerce-gateway-stripe#1073, solidusio/solidus_stripe#268.
   */
  captureIntent(id: string, fields: Fields): Answer {
    const intent = this.#objects.get(id);
    if (!intent) return missing('payment_intent', id);
    if (intent.status !== 'requires_capture') return unexpectedState(intent, 'captured');
    const amount = Number(intent.amount);
    const captured = Number(fields.amount_to_capture ?? amount);
    if (captured > amount) {
      return problem(400, {
        type: 'invalid_request_error',
        code: 'amount_too_large',
        param: 'amount_to_capture',
        message: 'The amount to capture is greater than the amount authorized.',
      });
    }
    const charge = this.#chargeOf(intent);
    Object.assign(intent, { status: 'succeeded', amount_capturable: 0, amount_received: captured });
    Object.assign(charge, {
      captured: true,
      amount_captured: captured,
      balance_transaction: this.#newBalanceTransaction(),
    });
    if (captured < amount) this.addRefund(charge, amount - captured, {});
    return { status: 200, body: intent };
  }

  /** https://docs.stripe.com/api/payment_intents/cancel; "the remaining amount_capturable is automatically refunded". */
  cancelIntent(id: string, fields: Fields): Answer {
    const intent = this.#objects.get(id);
    if (!intent) return missing('payment_intent', id);
    const cancelable = ['requires_payment_method', 'requires_capture', 'requires_confirmation', 'requires_action'];
    if (!cancelable.includes(String(intent.status))) return unexpectedState(intent, 'canceled');
    const held = intent.status === 'requires_capture';
    Object.assign(intent, {
      status: 'canceled',
      amount_capturable: 0,
      next_action: null,
      cancellation_reason: fields.cancellation_reason ?? null,
    });
    if (held) this.addRefund(this.#chargeOf(intent), Number(intent.amount), {});
    return { status: 200, body: intent };
  }

  /** https://docs.stripe.com/api/refunds/create */
  createRefund(fields: Fields): Answer {
    const intent = this.#objects.get(fields.payment_intent ?? '');
    if (!intent) return missing('payment_intent', fields.payment_intent ?? '');
    const charge = this.#chargeOf(intent);
    const left = Number(charge.amount) - Number(charge.amount_refunded);
    if (left === 0) {
      return problem(400, {
        type: 'invalid_request_error',
        code: 'charge_already_refunded',
        message: `Charge ${charge.id} has already been refunded.`,
      });
    }
    const amount = Number(fields.amount ?? left);
    if (amount > left) {
      return problem(400, {
        type: 'invalid_request_error',
        param: 'amount',
        message: `Refund amount (${amount}) is greater than unrefunded amount on charge (${left})`,
      });
    }
    return { status: 200, body: this.addRefund(charge, amount, fields) };
  }

  /** A refund of a charge: by the API (with `fields`), at the dashboard, or of money that was never taken. */
  addRefund(charge: Stored, amount: number, fields: Fields, created = nowS()): Stored {
    const refund: Stored = {
      id: newId('re'),
      object: 'refund',
      amount,
      balance_transaction: null,
      charge: charge.id,
      created,
      currency: charge.currency,
      metadata: metadataOf(fields),
      payment_intent: charge.payment_intent,
      reason: fields.reason ?? null,
      status: 'succeeded',
    };
    charge.amount_refunded = Number(charge.amount_refunded) + amount;
    charge.refunded = charge.amount_refunded === charge.amount;
    this.#objects.set(refund.id, refund);
    return refund;
  }

  chargeOf(intentId: string): Stored {
    const intent = this.#objects.get(intentId);
    if (!intent) throw new Error(`no ${intentId}`);
    return this.#chargeOf(intent);
  }

  #chargeOf(intent: Stored): Stored {
    const charge = this.#objects.get(String(intent.latest_charge));
    if (!charge) throw new Error(`${intent.id} has no charge`);
    return charge;
  }

  /** https://docs.stripe.com/api/expanding_objects: ids on the given paths become objects. */
  expanded(stored: Stored, paths: readonly string[]): unknown {
    const copy: Record<string, unknown> = { ...stored };
    for (const path of paths) {
      const [name = '', ...rest] = path.split('.');
      const target = this.#objects.get(String(copy[name]));
      if (target) copy[name] = this.expanded(target, rest.length > 0 ? [rest.join('.')] : []);
    }
    return copy;
  }
}

export function missing(kind: string, id: string): Answer {
  return problem(404, {
    type: 'invalid_request_error',
    code: 'resource_missing',
    param: 'intent',
    message: `No such ${kind}: '${id}'`,
  });
}

/** https://docs.stripe.com/error-codes#payment-intent-unexpected-state: the intent is in the error. */
function unexpectedState(intent: Stored, verb: string): Answer {
  return problem(400, {
    type: 'invalid_request_error',
    code: 'payment_intent_unexpected_state',
    message: `This PaymentIntent could not be ${verb} because it has a status of ${String(intent.status)}.`,
    payment_intent: { ...intent },
  });
}

function metadataOf(fields: Fields): Record<string, string> {
  return Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) => {
      const key = /^metadata\[(.+)\]$/.exec(name)?.[1];
      return key === undefined ? [] : [[key, value]];
    }),
  );
}
