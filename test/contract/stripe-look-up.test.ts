import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PaymentProvider } from '../../src/providers/provider.js';
import { createStripeProvider } from '../../src/providers/stripe/index.js';
import { problem } from '../support/stripe-objects.js';
import { chargeRequest, providerErrorOf, target } from '../support/stripe-requests.js';
import { startStripeStandin, type StripeStandin } from '../support/stripe-standin.js';

let stripe: StripeStandin;
let provider: PaymentProvider;
let references = 0;
const limit = { timeout_ms: 5000 };

beforeAll(async () => {
  stripe = await startStripeStandin();
  provider = createStripeProvider({
    secret_key: stripe.secret_key,
    api_base: stripe.url,
    webhook_secrets: [stripe.webhook_secret],
  });
});
afterAll(() => stripe.close());

async function charged(): Promise<{ reference: string; id: string }> {
  references += 1;
  const reference = `charge-${references}`;
  const fact = await provider.charge(chargeRequest(reference), { ...limit, provider_key: reference });
  return { reference, id: fact.provider_payment_id };
}

describe('retrieve', () => {
  it('by id: the charge as it is, for a charge, a capture and a cancel', async () => {
    const { id } = await charged();
    for (const kind of ['charge', 'capture', 'cancel'] as const) {
      expect(await provider.retrieve(target({ kind, id }), limit)).toMatchObject({
        type: 'charge',
        status: 'succeeded',
      });
    }
  });

  it('by reference: Search lags, so what it does not show is never "not found"', async () => {
    const { reference, id } = await charged();
    expect(await provider.retrieve(target({ reference }), limit)).toBe('not_visible_yet');
    expect(await provider.retrieve(target({ reference: 'never-sent' }), limit)).toBe('not_visible_yet');
    expect(
      await provider.retrieve(target({ kind: 'refund', reference: 'r', charge_reference: reference }), limit),
    ).toBe('not_visible_yet');
    stripe.catchUpSearch();
    expect(await provider.retrieve(target({ reference }), limit)).toMatchObject({
      provider_payment_id: id,
      status: 'succeeded',
    });
  });

  it('by reference: the state is read anew, not from the lagging index', async () => {
    references += 1;
    const reference = `held-${references}`;
    const held = await provider.charge(chargeRequest(reference, { capture: 'manual' }), {
      ...limit,
      provider_key: reference,
    });
    stripe.catchUpSearch();
    stripe.objects.captureIntent(held.provider_payment_id, {});
    expect(
      await provider.retrieve(target({ kind: 'capture', reference: 'c', charge_reference: reference }), limit),
    ).toMatchObject({ status: 'succeeded', amount_captured_minor: 1000n });
  });

  it('of several charges under one reference, it tells the one that took the money', async () => {
    const reference = 'twice';
    const declined = chargeRequest(reference, { payment_method: 'pm_card_visa_chargeDeclined' });
    await provider.charge(declined, { ...limit, provider_key: reference });
    stripe.forgetKeys();
    const paid = await provider.charge(chargeRequest(reference), { ...limit, provider_key: reference });
    stripe.catchUpSearch();
    expect(await provider.retrieve(target({ reference }), limit)).toEqual(paid);
  });

  it('what Search shows of another reference is not taken', async () => {
    const { id } = await charged();
    const body = { object: 'search_result', has_more: false, data: [stripe.objects.find(id)] };
    stripe.next('GET /v1/payment_intents/search', { commits: false, then: { status: 200, body } });
    expect(await provider.retrieve(target({ reference: 'mine' }), limit)).toBe('not_visible_yet');
  });

  it('counts what was refunded', async () => {
    const { id } = await charged();
    stripe.objects.addRefund(stripe.objects.chargeOf(id), 250, {});
    expect(await provider.retrieve(target({ id }), limit)).toMatchObject({
      status: 'succeeded',
      amount_refunded_minor: 250n,
    });
  });

  it('a refund by its id, by its reference among many, and one that Stripe never heard of', async () => {
    const { id } = await charged();
    const charge = stripe.objects.chargeOf(id);
    const ours = stripe.objects.addRefund(charge, 3, { 'metadata[reference]': 'refund-ours' });
    for (let i = 0; i < 150; i += 1) stripe.objects.addRefund(charge, 1, { 'metadata[reference]': `other-${i}` });
    const fact = {
      type: 'refund',
      status: 'succeeded',
      amount_minor: 3n,
      provider_refund_id: ours.id,
      provider_payment_id: id,
    };
    expect(await provider.retrieve(target({ kind: 'refund', id, refund_id: ours.id }), limit)).toMatchObject(fact);
    expect(await provider.retrieve(target({ kind: 'refund', id, reference: 'refund-ours' }), limit)).toMatchObject(
      fact,
    );
    expect(await provider.retrieve(target({ kind: 'refund', id, reference: 'refund-none' }), limit)).toBe('not_found');
  });

  it.each([
    ['pending', 'processing', null],
    ['requires_action', 'processing', null],
    ['failed', 'failed', 'expired_card'],
    ['canceled', 'canceled', 'expired_card'],
  ])('a refund that is %s', async (status, expected, failure) => {
    const { id } = await charged();
    const refund = stripe.objects.addRefund(stripe.objects.chargeOf(id), 100, {});
    Object.assign(refund, { status, failure_reason: 'expired_or_canceled_card' });
    expect(await provider.retrieve(target({ kind: 'refund', id, refund_id: refund.id }), limit)).toMatchObject({
      status: expected,
      failure: failure === null ? null : { code: failure },
    });
  });

  it('an id that this account does not know is no "not found": it may be another account’s', async () => {
    const error = await providerErrorOf(provider.retrieve(target({ id: 'pi_elsewhere' }), limit));
    expect(error).toMatchObject({ kind: 'unknown', reason: 'other_account' });
  });

  it('a refused question says nothing about what was asked', async () => {
    const then = problem(400, { type: 'invalid_request_error', message: 'Search is not available in your country.' });
    stripe.next('GET /v1/payment_intents/search', { commits: false, then });
    expect(await providerErrorOf(provider.retrieve(target({ reference: 'x' }), limit))).toMatchObject({
      kind: 'unknown',
    });
  });

  it('an intent in a state that we do not know is no fact', async () => {
    const { id } = await charged();
    Object.assign(stripe.objects.find(id) ?? {}, { status: 'half_taken' });
    expect(await providerErrorOf(provider.retrieve(target({ id }), limit))).toMatchObject({
      kind: 'unknown',
      reason: 'unreadable_answer',
    });
  });

  it('an intent whose confirmation is still under way is processing, not failed', async () => {
    const { id } = await charged();
    Object.assign(stripe.objects.find(id) ?? {}, { status: 'requires_payment_method', last_payment_error: null });
    expect(await provider.retrieve(target({ id }), limit)).toMatchObject({ status: 'processing', failure: null });
  });
});
