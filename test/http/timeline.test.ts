import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { Timeline } from '../../src/contract/schemas.js';
import { newCharge, TestSystem } from '../support/app.js';
import { cancel, capture, get, made, refund, untilFinal } from '../support/follow-up.js';
import { checkInvariants } from '../support/invariants.js';

const WAIT = { timeout: 30_000, interval: 50 };

interface Item {
  readonly at: string;
  readonly type: string;
  readonly operation_id: string | null;
  readonly detail: Readonly<Record<string, unknown>>;
}

let system: TestSystem;
beforeAll(async () => {
  system = await TestSystem.start({ webhooks: true });
});
afterAll(() => system.close(checkInvariants));

async function timeline(payment_id: string, api_key = system.api_key): Promise<Item[]> {
  const { body } = await get(system, `/payments/${payment_id}/timeline`, api_key).expect(200);
  expect(() => Timeline.parse(body)).not.toThrow();
  const times = body.data.map(({ at }: Item) => at);
  expect(times).toEqual([...times].sort());
  return body.data;
}

const details = (items: readonly Item[], type: string): Item['detail'][] =>
  items.filter((item) => item.type === type).map(({ detail }) => detail);

async function untilTold(payment_id: string, type: string): Promise<void> {
  await vi.waitFor(async () => {
    expect(details(await timeline(payment_id), 'provider_event').map((detail) => detail.type)).toContain(type);
  }, WAIT);
}

it('tells of a charge: the request by its key, the operation, its attempt, the states, what the provider told', async () => {
  const key = `order 1 "${randomUUID()}"`.replaceAll('"', '');
  const payment = await made(system, {}, { key });
  await untilTold(payment.id, 'payment.succeeded');
  const items = await timeline(payment.id);
  expect(details(items, 'request')).toEqual([{ idempotency_key: key, kind: 'charge' }]);
  expect(details(items, 'operation')).toEqual([
    expect.objectContaining({
      kind: 'charge',
      origin: 'client',
      try_number: 1,
      amount: '10.00',
      status: 'succeeded',
      attempts_started: 1,
      attempts_finished: 1,
      failure_code: null,
    }),
  ]);
  expect(details(items, 'attempt')).toEqual([
    { action: 'send', duration_ms: expect.any(Number), outcome: 'succeeded' },
  ]);
  expect(details(items, 'state_change')).toEqual([
    { from: null, to: 'processing', version: 1, cause: 'request' },
    { from: 'processing', to: 'succeeded', version: 2, cause: expect.any(String) },
  ]);
  expect(details(items, 'provider_event')).toEqual([
    expect.objectContaining({ type: 'payment.succeeded', outcome: expect.stringMatching(/applied|no_change/) }),
  ]);
  expect(details(items, 'anomaly')).toEqual([]);
});

it('tells of the whole life of a payment, in order', async () => {
  const payment = await made(system, {
    amount: '100.00',
    payment_method: 'pm_decline_card_declined',
    capture: 'manual',
  });
  const again = await system.charge({ ...payment.body, payment_method: 'pm_success' }).expect(201);
  expect(again.body).toMatchObject({ id: payment.id, status: 'authorized' });
  await capture(system, payment.id, { amount: '60.00' }).expect(200);
  await refund(system, payment.id, { amount: '10.00', reason: 'late' }).expect(201);
  await untilTold(payment.id, 'refund.succeeded');

  const items = await timeline(payment.id);
  expect(details(items, 'state_change').map(({ from, to }) => [from, to])).toEqual([
    [null, 'processing'],
    ['processing', 'failed'],
    ['failed', 'processing'],
    ['processing', 'authorized'],
    ['authorized', 'succeeded'],
  ]);
  const operations = details(items, 'operation').map(({ kind, amount, status }) => [kind, amount, status]);
  expect(operations).toEqual([
    ['charge', '100.00', 'failed'],
    ['charge', '100.00', 'succeeded'],
    ['capture', '60.00', 'succeeded'],
    ['refund', '10.00', 'succeeded'],
  ]);
  expect(details(items, 'request').map(({ kind }) => kind)).toEqual(['charge', 'charge', 'capture', 'refund']);
  // The declined try was closed at the provider before the second one was sent.
  expect(details(items, 'attempt').map(({ action, outcome }) => `${String(action)} ${String(outcome)}`)).toEqual([
    'send failed',
    'close canceled',
    'send authorized',
    'send succeeded',
    'send succeeded',
  ]);
  const versions = details(items, 'state_change').map(({ version }) => Number(version));
  expect(versions).toEqual([...versions].sort((a, b) => a - b));
});

it('tells of attempts that were cut off, of what was asked, and of keys that found the payment', async () => {
  const body = newCharge({ payment_method: 'pm_async_success_600000' });
  const [first, second] = [randomUUID(), randomUUID()];
  const { id, provider_payment_id } = (await system.charge(body, { key: first }).expect(202)).body;
  await system.charge(body, { key: second }).expect(202);
  const pending = await timeline(id);
  expect(details(pending, 'request')).toEqual([
    { idempotency_key: first, kind: 'charge' },
    { idempotency_key: second, kind: 'charge', found: 'processing' },
  ]);
  expect(details(pending, 'operation')).toMatchObject([{ status: 'processing', next_check_at: expect.any(String) }]);

  await system.simulator.complete(provider_payment_id, 'succeeded');
  await untilFinal(() => system.charge(body, { key: first }));
  const items = await timeline(id);
  expect(details(items, 'state_change').at(-1)).toMatchObject({ to: 'succeeded', cause: 'webhook' });
  expect(details(items, 'operation')).toMatchObject([{ status: 'succeeded', next_check_at: null }]);
});

it('tells of anomalies', async () => {
  const payment = await made(system, { capture: 'manual' });
  await system.simulator.next(payment.provider_payment_id, 'capture', 'pm_other_amount_900');
  await capture(system, payment.id, { amount: '5.00' }).expect(200);
  expect(details(await timeline(payment.id), 'anomaly')).toEqual([
    expect.objectContaining({ kind: 'captured_too_much', asked: '500', told: '900', resolved_at: null }),
  ]);
});

it('tells of a refund at the provider’s own dashboard', async () => {
  const payment = await made(system);
  await system.simulator.dashboard(payment.provider_payment_id, 'refund', 250);
  await untilTold(payment.id, 'refund.succeeded');
  const items = await timeline(payment.id);
  expect(details(items, 'operation')).toMatchObject([
    { kind: 'charge' },
    { kind: 'refund', origin: 'provider', amount: '2.50', status: 'succeeded' },
  ]);
  expect(details(items, 'request').map(({ kind }) => kind)).toEqual(['charge']);
});

it('holds no secrets: no API key, webhook secret, hash or lease', async () => {
  const payment = await made(system, { capture: 'manual', metadata: { note: 'x' } });
  await cancel(system, payment.id).expect(200);
  await untilTold(payment.id, 'payment.canceled');
  const text = JSON.stringify(await timeline(payment.id));
  const [record] = await system.query<{ hashes: string[] }>(
    `select array_agg(encode(h, 'hex')) as hashes from (
       select key_hash as h from operation where payment_id = $1 union select command_hash from operation where payment_id = $1
     ) as all_hashes where h is not null`,
    [payment.id],
  );
  for (const secret of [system.api_key, system.simulator.webhook_secret, ...record!.hashes])
    expect(text).not.toContain(secret);
  expect(text).not.toMatch(/oncepay_sk_|whsec_|lease|signature|Bearer/i);
});

it('is of one payment; another client’s, and what is no id, are 404', async () => {
  const payment = await made(system);
  const other = await system.client('other', ['payments:read']);
  expect((await get(system, `/payments/${payment.id}/timeline`, other).expect(404)).body.code).toBe('not_found');
  for (const id of [randomUUID(), 'x', `${payment.id}%00`, '%2e%2e']) {
    expect((await get(system, `/payments/${id}/timeline`).expect(404)).body.code).toBe('not_found');
  }
  expect(await timeline(payment.id.toUpperCase())).not.toEqual([]);
});
