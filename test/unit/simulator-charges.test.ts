import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FAILURE_CODES } from '../../src/domain/payment.js';
import { startSimulatorInside, type SimulatorControl } from '../support/simulator.js';
import { eventually, SimulatorApi } from '../support/simulator-api.js';

type Failed = { error: { code: string } };

let simulator: SimulatorControl & { stop(): Promise<void> };
let api: SimulatorApi;
beforeAll(async () => {
  simulator = await startSimulatorInside();
  api = new SimulatorApi(simulator.url);
});
afterAll(() => simulator.stop());

const movementsOf = (reference: string) => simulator.movements({ reference });
const answersOf = async (reference: string) => (await simulator.calls({ reference })).map((call) => call.answer);

describe('a charge at the simulator', () => {
  it('moves the money once and is told as it is', async () => {
    const reference = api.newReference();
    const answer = await api.charge(reference);
    expect(answer).toMatchObject({ status: 201, isReplay: false });
    const [payment] = await simulator.payments(reference);
    expect(payment).toEqual({
      id: expect.stringMatching(/^sbx_pay_/),
      reference,
      status: 'succeeded',
      amount_minor: 1000,
      amount_captured_minor: 1000,
      amount_refunded_minor: 0,
      currency: 'EUR',
      failure_code: null,
      next_action: null,
      metadata: { reference },
    });
    expect(await movementsOf(reference)).toEqual([
      { kind: 'charge', amount_minor: 1000, currency: 'EUR', payment_id: payment?.id, reference },
    ]);
    expect((await simulator.calls({ reference }))[0]).toEqual({
      operation: 'charge',
      idempotency_key: reference,
      reference,
      amount_minor: 1000,
      currency: 'EUR',
      answer: 201,
    });
  });

  it('is answered again under its key, whatever the order of members', async () => {
    const reference = api.newReference();
    const body = { reference, metadata: { a: 'b', reference }, currency: 'EUR', amount_minor: 1000 };
    const first = await api.post('/payments', reference, body);
    const again = await api.post('/payments', reference, Object.fromEntries(Object.entries(body).reverse()));
    expect(again).toEqual({ ...(first as object), isReplay: true });
    expect(await movementsOf(reference)).toHaveLength(1);
  });

  it('is refused under its key with other parameters, before and after its end', async () => {
    const reference = api.newReference();
    const slow = api.charge(reference, { payment_method: 'pm_slow_900' });
    await eventually(async () => expect(await answersOf(reference)).toEqual([null]));
    expect(await api.charge(reference, { amount_minor: 999 })).toMatchObject({
      status: 422,
      code: 'key_parameters_mismatch',
    });
    expect(await slow).toMatchObject({ status: 201 });
    expect(await api.charge(reference, { amount_minor: 999 })).toMatchObject({
      status: 422,
      code: 'key_parameters_mismatch',
    });
    expect(await movementsOf(reference)).toHaveLength(1);
  });

  it('moves twice under one key only when the keys were forgotten, and both show', async () => {
    const reference = api.newReference();
    await api.charge(reference);
    await simulator.forgetKeys();
    expect(await api.charge(reference)).toMatchObject({ status: 201, isReplay: false });
    expect(await movementsOf(reference)).toHaveLength(2);
    expect(await simulator.payments(reference)).toHaveLength(2);
  });

  it('is only held when it is to be captured by hand', async () => {
    const payment = await api.charged({ capture: 'manual' });
    expect(payment).toMatchObject({ status: 'authorized', amount_captured_minor: 0 });
    expect((await movementsOf(payment.reference)).map((m) => m.kind)).toEqual(['authorization']);
  });

  it.each(FAILURE_CODES)('is declined with %s, and nothing moves', async (code) => {
    const payment = await api.charged({ payment_method: `pm_decline_${code}` });
    expect(payment).toMatchObject({ status: 'failed', failure_code: code, amount_captured_minor: 0 });
    expect(await movementsOf(payment.reference)).toEqual([]);
  });

  it('works with a token that is none of its words, and refuses a word that it does not know', async () => {
    expect(await api.charged({ payment_method: 'tok_visa' })).toMatchObject({ status: 'succeeded' });
    for (const payment_method of [
      'pm_sucess',
      'pm_decline_nothing',
      'pm_slow_600001',
      'pm_status_200_once',
      'pm_success+x',
    ]) {
      const reference = api.newReference();
      expect(await api.charge(reference, { payment_method })).toMatchObject({
        status: 400,
        code: 'payment_method_invalid',
      });
      // The key is free for a corrected request.
      expect(await api.charge(reference, { payment_method: 'pm_success' })).toMatchObject({ status: 201 });
    }
  });
});

describe('a charge that waits for the customer', () => {
  it('succeeds when it is completed', async () => {
    const payment = await api.charged({ payment_method: 'pm_requires_action' });
    expect(payment).toMatchObject({ status: 'requires_action', next_action: { type: 'redirect' } });
    expect(await movementsOf(payment.reference)).toEqual([]);
    expect(await simulator.complete(payment.reference, 'succeeded')).toMatchObject({
      status: 'succeeded',
      next_action: null,
    });
    expect(await movementsOf(payment.reference)).toHaveLength(1);
    await expect(simulator.complete(payment.id, 'failed')).rejects.toThrow('invalid_state');
  });

  it('fails when the customer could not be authenticated', async () => {
    const payment = await api.charged({ payment_method: 'pm_requires_action', capture: 'manual' });
    const failed = { status: 'failed', failure_code: 'authentication_failed' };
    expect(await simulator.complete(payment.id, 'failed')).toMatchObject(failed);
    expect(await movementsOf(payment.reference)).toEqual([]);
  });

  it('has a page that a person can act on, and that leads back', async () => {
    const return_url = 'https://shop.example/back?a="<b>';
    const payment = await api.charged({ payment_method: 'pm_requires_action', return_url });
    const url = payment.next_action?.url ?? '';
    expect(await (await fetch(url)).text()).toContain('<button name="result" value="succeeded">');
    const acted = await fetch(url, {
      method: 'POST',
      body: new URLSearchParams({ result: 'succeeded' }),
      redirect: 'manual',
    });
    expect([acted.status, acted.headers.get('location')]).toEqual([303, return_url]);
    expect(await api.payment(payment.id)).toMatchObject({ status: 'succeeded' });
  });
});

describe('a charge that is slow or asynchronous', () => {
  it('pm_slow: its key is in use until it commits, once', async () => {
    const reference = api.newReference();
    const more = { payment_method: 'pm_slow_900' };
    const first = api.charge(reference, more);
    await eventually(async () => expect(await answersOf(reference)).toEqual([null]));
    expect(await api.charge(reference, more)).toMatchObject({ status: 409, code: 'key_in_use' });
    expect(await simulator.payments(reference)).toEqual([]);
    expect(await first).toMatchObject({ status: 201 });
    expect(await movementsOf(reference)).toHaveLength(1);
  });

  it('pm_slow: a caller that gives up changes nothing', async () => {
    const reference = api.newReference();
    expect(await api.charge(reference, { payment_method: 'pm_slow_100' }, 30)).toBe('no_answer');
    await eventually(async () => expect(await movementsOf(reference)).toHaveLength(1));
    await eventually(async () => expect(await answersOf(reference)).toEqual(['silent']));
  });

  it('pm_slow_answer: the money has moved before the answer', async () => {
    const reference = api.newReference();
    const first = api.charge(reference, { payment_method: 'pm_slow_answer_1000' });
    await eventually(async () => expect(await movementsOf(reference)).toHaveLength(1));
    expect((await simulator.calls({ reference, operation: 'charge' }))[0]?.answer).toBeNull();
    expect(await first).toMatchObject({ status: 201 });
  });

  it('pm_lookup_lag: only the look-up by reference lags', async () => {
    const payment = await api.charged({ payment_method: 'pm_lookup_lag_1000' });
    expect(await simulator.payments(payment.reference)).toEqual([]);
    expect((await api.get(`/payments/${payment.id}`)).status).toBe(200);
    await eventually(async () => expect(await simulator.payments(payment.reference)).toHaveLength(1));
  });

  it.each([
    ['pm_async_success_50', 'succeeded', 1],
    ['pm_async_failure_50', 'failed', 0],
  ])('%s: answers processing and becomes %s', async (payment_method, status, movements) => {
    const payment = await api.charged({ payment_method });
    expect(payment.status).toBe('processing');
    await eventually(async () => expect(await api.payment(payment.id)).toMatchObject({ status }));
    expect(await movementsOf(payment.reference)).toHaveLength(movements);
  });

  it('pm_async: can be completed at once, and then stays as it is', async () => {
    const payment = await api.charged({ payment_method: 'pm_async_success_900' });
    await simulator.complete(payment.id, 'failed');
    const later = await api.charged({ payment_method: 'pm_async_success_1200' });
    await eventually(async () => expect(await api.payment(later.id)).toMatchObject({ status: 'succeeded' }));
    expect(await api.payment(payment.id)).toMatchObject({ status: 'failed' });
  });

  it('pm_decline_then_succeed: fails, then succeeds by itself', async () => {
    const payment = await api.charged({ payment_method: 'pm_decline_then_succeed_80' });
    expect(payment).toMatchObject({ status: 'failed', failure_code: 'card_declined' });
    await eventually(async () =>
      expect(await api.payment(payment.id)).toMatchObject({ status: 'succeeded', failure_code: null }),
    );
    expect(await movementsOf(payment.reference)).toHaveLength(1);
  });

  it('pm_decline_then_succeed: never succeeds once it is canceled, and that moves nothing', async () => {
    const payment = await api.charged({ payment_method: 'pm_decline_then_succeed_900' });
    expect(await api.post(`/payments/${payment.id}/cancel`, 'close-1', {})).toMatchObject({
      status: 200,
      payment: { status: 'canceled' },
    });
    const later = await api.charged({ payment_method: 'pm_async_success_1200' });
    await eventually(async () => expect(await api.payment(later.id)).toMatchObject({ status: 'succeeded' }));
    expect(await api.payment(payment.id)).toMatchObject({ status: 'canceled' });
    expect(await simulator.movements({ payment_id: payment.id })).toEqual([]);
  });
});

describe('a charge whose answer is lost', () => {
  it('pm_commit_then_hang: the money has moved; the key answers', async () => {
    const reference = api.newReference();
    const more = { payment_method: 'pm_commit_then_hang' };
    expect(await api.charge(reference, more, 100)).toBe('no_answer');
    expect(await api.charge(reference, more)).toMatchObject({ status: 201, isReplay: true });
    expect(await movementsOf(reference)).toHaveLength(1);
    expect(await answersOf(reference)).toEqual(['silent', 201]);
  });

  it('pm_commit_then_reset: the same with a dropped connection', async () => {
    const reference = api.newReference();
    const more = { payment_method: 'pm_commit_then_reset' };
    expect(await api.charge(reference, more)).toBe('no_answer');
    expect(await api.charge(reference, more)).toMatchObject({ status: 201, isReplay: true });
    expect(await movementsOf(reference)).toHaveLength(1);
  });

  it('pm_commit_then_error: the key answers 500 for ever, the look-up tells the truth', async () => {
    const reference = api.newReference();
    const more = { payment_method: 'pm_commit_then_error' };
    expect(await api.charge(reference, more)).toMatchObject({ status: 500, isReplay: false });
    expect(await api.charge(reference, more)).toMatchObject({ status: 500, isReplay: true });
    expect(await simulator.payments(reference)).toMatchObject([{ status: 'succeeded' }]);
    expect(await movementsOf(reference)).toHaveLength(1);
  });

  it('pm_late_commit: nobody sees it until it commits, and its key is in use', async () => {
    const reference = api.newReference();
    const more = { payment_method: 'pm_late_commit_1000' };
    expect(await api.charge(reference, more)).toBe('no_answer');
    expect(await simulator.payments(reference)).toEqual([]);
    expect(await api.charge(reference, more)).toMatchObject({ status: 409, code: 'key_in_use' });
    await eventually(async () => expect(await movementsOf(reference)).toHaveLength(1));
    expect(await api.charge(reference, more)).toMatchObject({ status: 201, isReplay: true });
    expect(await movementsOf(reference)).toHaveLength(1);
  });

  it.each([
    ['pm_unavailable_once', 503, 'unavailable'],
    ['pm_key_in_use_once', 409, 'key_in_use'],
    ['pm_status_429_once', 429, 'asked_for'],
  ])('%s: answers %i the first time and moves nothing', async (payment_method, status, code) => {
    const reference = api.newReference();
    expect(await api.charge(reference, { payment_method })).toMatchObject({ status, code });
    expect(await movementsOf(reference)).toEqual([]);
    expect(await api.charge(reference, { payment_method })).toMatchObject({ status: 201, isReplay: false });
    expect(await movementsOf(reference)).toHaveLength(1);
  });

  it('takes several words at once', async () => {
    const reference = api.newReference();
    const more = { payment_method: 'pm_commit_then_reset+pm_lookup_lag_1000+pm_decline_card_declined' };
    expect(await api.charge(reference, more)).toBe('no_answer');
    expect(await simulator.payments(reference)).toEqual([]);
    await eventually(async () => expect(await simulator.payments(reference)).toMatchObject([{ status: 'failed' }]));
  });

  it('takes another amount or currency than asked, where it is told to', async () => {
    const amount = await api.charged({ payment_method: 'pm_other_amount_700' });
    expect(amount).toMatchObject({ amount_minor: 700, amount_captured_minor: 700 });
    expect(await movementsOf(amount.reference)).toMatchObject([{ amount_minor: 700 }]);
    expect(await api.charged({ payment_method: 'pm_other_currency_USD' })).toMatchObject({ currency: 'USD' });
  });
});

describe('what can’t be read', () => {
  it.each([
    ['{', {}],
    ['[]', {}],
    ['{"amount_minor": 1.5}', {}],
    ['{"amount_minor": 0}', {}],
    ['{"amount_minor": 9007199254740993}', {}],
    ['{"amount_minor": "1000"}', {}],
    ['{"currency": "eur"}', {}],
    ['{"reference": ""}', {}],
    ['{"metadata": {"a": 1}}', {}],
    ['{"capture": "later"}', {}],
    ['{"unknown": 1}', {}],
    [`{"reference": "${'x'.repeat(70_000)}"}`, {}],
    ['{}', { 'idempotency-key': '' }],
    ['{}', { 'idempotency-key': 'k'.repeat(256) }],
  ])('%.40s is a 4xx that moves nothing', async (text, headers) => {
    const before = (await simulator.movements()).length;
    const good = { amount_minor: 1000, currency: 'EUR', reference: 'r', metadata: {} };
    const isObject = text.startsWith('{"');
    const body = isObject ? JSON.stringify({ ...good, ...JSON.parse(text) }) : text;
    const response = await fetch(`${simulator.url}/payments`, {
      method: 'POST',
      headers: { 'idempotency-key': 'bad', ...headers },
      body,
    });
    expect(response.status).toBeGreaterThanOrEqual(400);
    expect(response.status).toBeLessThan(500);
    expect(((await response.json()) as Failed).error.code).toMatch(/^(invalid_request|body_too_large)$/);
    expect(await simulator.movements()).toHaveLength(before);
  });

  it('is not found under another path or id', async () => {
    expect((await api.get('/payments/sbx_pay_none')).body.error?.code).toBe('not_found');
    expect((await api.get('/refunds/sbx_ref_none')).body.error?.code).toBe('not_found');
    expect((await api.get('/nothing')).body.error?.code).toBe('route_not_found');
    expect((await api.get('/payments')).status).toBe(400);
    expect((await api.get('/payments?reference=a&reference=b')).status).toBe(400);
    expect(await api.post('/payments/sbx_pay_none/capture', 'none', {})).toMatchObject({
      status: 404,
      code: 'not_found',
    });
  });
});
