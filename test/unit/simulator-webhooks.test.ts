import { afterEach, beforeEach, expect, it } from 'vitest';
import { newWebhookSecret, startSimulatorInside, type SimulatorControl } from '../support/simulator.js';
import { eventually, SimulatorApi } from '../support/simulator-api.js';
import { startWebhookReceiver, type WebhookReceiver } from '../support/webhook-receiver.js';

let simulator: SimulatorControl & { stop(): Promise<void> };
let receiver: WebhookReceiver;
let api: SimulatorApi;
beforeEach(async () => {
  const webhook_secret = newWebhookSecret();
  receiver = await startWebhookReceiver(webhook_secret);
  simulator = await startSimulatorInside({ webhook_url: receiver.url, webhook_secret });
  api = new SimulatorApi(simulator.url);
});
afterEach(async () => {
  await simulator.stop();
  await receiver.stop();
});

const types = () => receiver.received.map((event) => event.type);
const arrived = (...expected: string[]) => eventually(() => expect(types().sort()).toEqual(expected.sort()));

it('tells of every change, signed by the scheme', async () => {
  const { id, reference } = await api.charged({ capture: 'manual' });
  await arrived('payment.authorized');
  await api.post(`/payments/${id}/capture`, 'capture', { amount_minor: 600 });
  await arrived('payment.authorized', 'payment.succeeded');
  await api.post(`/payments/${id}/refunds`, 'refund', { amount_minor: 100, reference: 'refund' });
  await arrived('payment.authorized', 'payment.succeeded', 'refund.succeeded');
  const event = receiver.received[2]!;
  expect(event.id).toMatch(/^sbx_evt_/);
  expect(Math.abs(Date.parse(event.body.timestamp) - Date.now())).toBeLessThan(10_000);
  expect(event.body.data).toMatchObject({
    payment: { id, reference, amount_captured_minor: 600, amount_refunded_minor: 100 },
    refund: { id: expect.stringMatching(/^sbx_ref_/), reference: 'refund', amount_minor: 100, status: 'succeeded' },
  });
  await simulator.refundStatus('refund', 'canceled');
  await arrived('payment.authorized', 'payment.succeeded', 'refund.succeeded', 'refund.canceled');
  expect(receiver.received[3]?.body.data.payment.amount_refunded_minor).toBe(0);
});

it('tells of open actions, declines, cancels and what is asynchronous', async () => {
  const { id } = await api.charged({ payment_method: 'pm_requires_action' });
  await simulator.complete(id, 'failed');
  await api.post(`/payments/${id}/cancel`, 'close', {});
  await api.charged({ payment_method: 'pm_async_success_30' });
  await arrived('payment.requires_action', 'payment.failed', 'payment.canceled', 'payment.succeeded');
});

it('sends again until it is answered 2xx, with the same id and body', async () => {
  receiver.answerNext(503, 0, 500, 204);
  await api.charged();
  await eventually(() => expect(receiver.received).toHaveLength(3));
  expect(new Set(receiver.received.map((event) => `${event.id} ${JSON.stringify(event.body)}`)).size).toBe(1);
  await eventually(async () => expect(await simulator.events()).toMatchObject([{ is_delivered: true }]));
});

it('pm_webhook_first: the event is delivered before the answer', async () => {
  const reference = api.newReference();
  let answered = false;
  const seen: boolean[] = [];
  receiver.beforeAnswer(() => void seen.push(answered));
  await api.charge(reference, { payment_method: 'pm_webhook_first' });
  answered = true;
  expect(seen).toEqual([false]);
});

it('pm_webhook_duplicates: one event several times, and its twin under another id', async () => {
  await api.charged({ payment_method: 'pm_webhook_duplicates' });
  await eventually(() => expect(receiver.received).toHaveLength(6));
  expect(new Set(receiver.received.map((event) => event.id)).size).toBe(2);
  expect(new Set(receiver.received.map((event) => JSON.stringify(event.body))).size).toBe(1);
});

it('pm_webhook_reordered: older news comes after newer', async () => {
  const { id } = await api.charged({ payment_method: 'pm_webhook_reordered' });
  await eventually(() => expect(types()).toEqual(['payment.succeeded', 'payment.failed', 'payment.requires_action']));
  const times = receiver.received.map((event) => Date.parse(event.body.timestamp));
  expect(times[1]).toBeLessThan(times[0]!);
  await simulator.next(id, 'refund', 'pm_webhook_reordered');
  await api.post(`/payments/${id}/refunds`, 'refund', { amount_minor: 100, reference: 'refund' });
  await eventually(() => expect(types().slice(3)).toEqual(['refund.succeeded', 'payment.succeeded']));
  expect(receiver.received[4]?.body.data.payment.amount_refunded_minor).toBe(0);
});

it('sends an event again on request, and any body that a test wants', async () => {
  await api.charged();
  await eventually(() => expect(receiver.received).toHaveLength(1));
  expect(await simulator.resend(receiver.received[0]!.id, 20)).toEqual(Array(20).fill(200));
  expect(new Set(receiver.received.map((event) => event.id)).size).toBe(1);
  const emitted = await simulator.emit({ type: 'payment.unheard_of', timestamp: 'x', data: {} }, { event_id: 'mine' });
  expect(emitted).toEqual({ event_id: 'mine', result: 200 });
  expect(receiver.received.at(-1)).toMatchObject({ id: 'mine', type: 'payment.unheard_of' });
  // The scheme's own library refuses it as too old.
  expect(await simulator.emit({ type: 'x' }, { sent_at_offset_s: -400 })).toMatchObject({ result: 400 });
  expect(await simulator.emit(` {"type": "${'x'.repeat(300_000)}"} `)).toMatchObject({ result: 200 });
  await expect(simulator.resend('sbx_evt_none')).rejects.toThrow('404');
});

it('refuses to start with a secret that is none', async () => {
  const start = (webhook_secret: string) => startSimulatorInside({ webhook_url: receiver.url, webhook_secret });
  await expect(start('whsec_')).rejects.toThrow(/empty/);
  await expect(start('secret')).rejects.toThrow(/whsec_/);
});
