import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startSimulatorInside, type SimulatorControl } from '../support/simulator.js';
import { eventually, SimulatorApi } from '../support/simulator-api.js';

let simulator: SimulatorControl & { stop(): Promise<void> };
let api: SimulatorApi;
beforeAll(async () => {
  simulator = await startSimulatorInside();
  api = new SimulatorApi(simulator.url);
});
afterAll(() => simulator.stop());

const authorized = () => api.charged({ capture: 'manual' });
const capture = (id: string, key: string, body: object = {}) => api.post(`/payments/${id}/capture`, key, body);
const cancel = (id: string, key: string) => api.post(`/payments/${id}/cancel`, key, {});
const refund = (id: string, reference: string, amount_minor?: number, limit_ms?: number) =>
  api.post(`/payments/${id}/refunds`, reference, { amount_minor, reference }, limit_ms);
const kindsOf = async (payment_id: string) =>
  (await simulator.movements({ payment_id })).map((m) => `${m.kind} ${m.amount_minor}`);

describe('a capture', () => {
  it('takes what is asked once; the rest is released and is no refund', async () => {
    const { id } = await authorized();
    const body = { amount_minor: 600 };
    expect(await capture(id, `cap-${id}`, body)).toMatchObject({
      status: 200,
      payment: { status: 'succeeded', amount_minor: 1000, amount_captured_minor: 600, amount_refunded_minor: 0 },
    });
    expect(await capture(id, `cap-${id}`, body)).toMatchObject({ status: 200, isReplay: true });
    expect(await kindsOf(id)).toEqual(['authorization 1000', 'capture 600']);
    expect((await simulator.movements({ payment_id: id }))[1]?.reference).toBe(`cap-${id}`);
  });

  it('is refused above what is authorized, and where nothing is; the key keeps that answer', async () => {
    const { id } = await authorized();
    expect(await capture(id, `cap-${id}`, { amount_minor: 1001 })).toMatchObject({
      status: 400,
      code: 'amount_too_large',
    });
    expect(await capture(id, `cap-${id}`, { amount_minor: 1001 })).toMatchObject({ status: 400, isReplay: true });
    await cancel(id, `can-${id}`);
    expect(await capture(id, `cap2-${id}`)).toMatchObject({
      status: 409,
      code: 'invalid_state',
      payment: { payment: { status: 'canceled' } },
    });
    expect(await kindsOf(id)).toEqual(['authorization 1000', 'cancel 1000']);
  });

  it('and a cancel at the same moment: one wins', async () => {
    const { id } = await authorized();
    const answers = await Promise.all([capture(id, `cap-${id}`), cancel(id, `can-${id}`)]);
    expect(answers.map((answer) => (answer === 'no_answer' ? 0 : answer.status)).sort()).toEqual([200, 409]);
    expect(await kindsOf(id)).toHaveLength(2);
  });
});

describe('a cancel', () => {
  it('of an open action or a failed payment moves nothing and is for good', async () => {
    for (const payment_method of ['pm_requires_action', 'pm_decline_card_declined']) {
      const { id } = await api.charged({ payment_method });
      expect(await cancel(id, `can-${id}`)).toMatchObject({ status: 200, payment: { status: 'canceled' } });
      expect(await cancel(id, `again-${id}`)).toMatchObject({ status: 200, payment: { status: 'canceled' } });
      expect(await kindsOf(id)).toEqual([]);
    }
  });

  it('of money that was taken, or is about to be, is refused', async () => {
    const { id } = await api.charged();
    expect(await cancel(id, `can-${id}`)).toMatchObject({ status: 409, code: 'invalid_state' });
    const open = await api.charged({ payment_method: 'pm_async_success_5000' });
    expect(await cancel(open.id, `can-${open.id}`)).toMatchObject({ status: 409, code: 'invalid_state' });
  });
});

describe('a refund', () => {
  it('never passes what was captured, whoever asks at once', async () => {
    const { id } = await api.charged();
    const answers = await Promise.all(Array.from({ length: 30 }, (_, n) => refund(id, `ref-${id}-${n}`, 150)));
    const statuses = answers.map((answer) => (answer === 'no_answer' ? 0 : answer.status));
    expect(statuses.filter((status) => status === 201)).toHaveLength(6);
    expect(statuses.filter((status) => status === 400)).toHaveLength(24);
    expect(await api.payment(id)).toMatchObject({ amount_refunded_minor: 900 });
    expect(await refund(id, `rest-${id}`)).toMatchObject({ status: 201, payment: { amount_minor: 100 } });
    expect(await refund(id, `more-${id}`)).toMatchObject({ status: 400, code: 'amount_exceeds_remaining' });
  });

  it('is found by its reference and its id', async () => {
    const { id } = await api.charged();
    const made = await refund(id, `ref-${id}`, 300);
    const expected = {
      reference: `ref-${id}`,
      payment_id: id,
      amount_minor: 300,
      status: 'succeeded',
      currency: 'EUR',
    };
    const found = (await api.get(`/refunds?reference=ref-${id}`)).body.data;
    expect(found).toMatchObject([expected]);
    expect((await api.get(`/refunds/${found?.[0]?.id}`)).body).toEqual(found?.[0]);
    expect(made).toMatchObject({ status: 201, payment: expected });
  });

  it('is refused where nothing was captured', async () => {
    const { id } = await authorized();
    expect(await refund(id, `ref-${id}`, 1)).toMatchObject({ status: 409, code: 'invalid_state' });
  });

  it('that succeeded can be taken back, which frees its amount', async () => {
    const { id } = await api.charged();
    await refund(id, `ref-${id}`, 1000);
    expect(await simulator.refundStatus(`ref-${id}`, 'failed')).toMatchObject({ status: 'failed' });
    expect(await api.payment(id)).toMatchObject({ amount_refunded_minor: 0 });
    expect(await kindsOf(id)).toEqual(['charge 1000', 'refund 1000', 'refund_reversal 1000']);
    expect(await refund(id, `again-${id}`, 1000)).toMatchObject({ status: 201 });
    await expect(simulator.refundStatus(`ref-${id}`, 'succeeded')).rejects.toThrow('invalid_state');
  });
});

describe('the behaviour of the next operation', () => {
  it('is used once and counts for that operation only', async () => {
    const { id, reference } = await authorized();
    await simulator.next(reference, 'capture', 'pm_decline_processing_error');
    await simulator.next(id, 'capture', 'pm_unavailable_once');
    expect(await capture(id, `cap-${id}`)).toMatchObject({ status: 402, code: 'processing_error' });
    expect(await capture(id, `cap-${id}`)).toMatchObject({ status: 402, isReplay: true });
    expect(await capture(id, `new-${id}`)).toMatchObject({ status: 503 });
    expect(await capture(id, `new-${id}`)).toMatchObject({ status: 200, isReplay: false });
    expect(await kindsOf(id)).toEqual(['authorization 1000', 'capture 1000']);
  });

  it('can lose the answer to a capture, a cancel and a refund', async () => {
    const { id } = await authorized();
    await simulator.next(id, 'capture', 'pm_commit_then_reset');
    expect(await capture(id, `cap-${id}`)).toBe('no_answer');
    await simulator.next(id, 'refund', 'pm_late_commit_900');
    expect(await refund(id, `ref-${id}`, 400)).toBe('no_answer');
    expect(await refund(id, `ref-${id}`, 400)).toMatchObject({ code: 'key_in_use' });
    await eventually(async () =>
      expect(await kindsOf(id)).toEqual(['authorization 1000', 'capture 1000', 'refund 400']),
    );
    const other = await authorized();
    await simulator.next(other.id, 'cancel', 'pm_commit_then_hang');
    expect(await api.post(`/payments/${other.id}/cancel`, `can-${other.id}`, {}, 80)).toBe('no_answer');
    expect(await kindsOf(other.id)).toEqual(['authorization 1000', 'cancel 1000']);
  });

  it('can make a refund asynchronous: its amount is held until it ends', async () => {
    const { id } = await api.charged();
    await simulator.next(id, 'refund', 'pm_async_failure_900');
    expect(await refund(id, `a-${id}`, 700)).toMatchObject({ status: 201, payment: { status: 'processing' } });
    expect(await refund(id, `b-${id}`, 400)).toMatchObject({ status: 400, code: 'amount_exceeds_remaining' });
    await eventually(async () => {
      expect((await api.get(`/refunds?reference=a-${id}`)).body.data).toMatchObject([
        { status: 'failed', failure_code: 'processing_error' },
      ]);
    });
    expect(await refund(id, `c-${id}`, 400)).toMatchObject({ status: 201 });
    expect(await kindsOf(id)).toEqual(['charge 1000', 'refund 400']);
  });

  it('can decline a refund, and let it succeed later all the same', async () => {
    const { id } = await api.charged();
    await simulator.next(id, 'refund', 'pm_decline_then_succeed_60+pm_lookup_lag_1');
    expect(await refund(id, `a-${id}`, 700)).toMatchObject({ status: 201, payment: { status: 'failed' } });
    await eventually(async () => expect(await kindsOf(id)).toEqual(['charge 1000', 'refund 700']));
  });

  it('can make a capture or cancel asynchronous', async () => {
    const first = await authorized();
    await simulator.next(first.id, 'capture', 'pm_async_success_50');
    expect(await capture(first.id, `cap-${first.id}`, { amount_minor: 10 })).toMatchObject({
      payment: { status: 'processing' },
    });
    await eventually(async () => expect(await kindsOf(first.id)).toEqual(['authorization 1000', 'capture 10']));
    const second = await authorized();
    await simulator.next(second.id, 'cancel', 'pm_async_success_50');
    expect(await cancel(second.id, `can-${second.id}`)).toMatchObject({ payment: { status: 'processing' } });
    await eventually(async () => expect(await kindsOf(second.id)).toEqual(['authorization 1000', 'cancel 1000']));
  });

  it('must be one that the operation can have', async () => {
    const { id } = await authorized();
    await expect(simulator.next(id, 'capture', 'pm_requires_action')).rejects.toThrow('400');
    await expect(simulator.next(id, 'cancel', 'pm_async_failure')).rejects.toThrow('400');
    await expect(simulator.next(id, 'refund', 'nothing')).rejects.toThrow('400');
    await expect(simulator.next('nobody', 'refund', 'pm_success')).rejects.toThrow('404');
  });
});

describe('what happens at the provider’s own side', () => {
  it('a capture, a cancel and a refund without our key or reference', async () => {
    const first = await authorized();
    await simulator.dashboard(first.id, 'capture', 800);
    await simulator.dashboard(first.reference, 'refund', 300);
    expect(await simulator.movements({ payment_id: first.id })).toMatchObject([
      { kind: 'authorization' },
      { kind: 'capture', amount_minor: 800, reference: null },
      { kind: 'refund', amount_minor: 300, reference: null },
    ]);
    const second = await authorized();
    await simulator.dashboard(second.id, 'cancel');
    await expect(simulator.dashboard(second.id, 'cancel')).resolves.toMatchObject({ status: 'canceled' });
    expect(await kindsOf(second.id)).toEqual(['authorization 1000', 'cancel 1000']);
    expect(await simulator.calls({ reference: second.reference })).toHaveLength(1);
  });

  it('an authorization expires: nothing can be captured any more', async () => {
    const { id } = await authorized();
    expect(await simulator.expire(id)).toMatchObject({ status: 'failed', failure_code: 'authorization_expired' });
    expect(await capture(id, `cap-${id}`)).toMatchObject({ status: 409 });
    await expect(simulator.expire(id)).rejects.toThrow('invalid_state');
  });
});
