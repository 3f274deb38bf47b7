import { createHmac, randomUUID } from 'node:crypto';
import { Webhook } from 'standardwebhooks';
import { expect, vi } from 'vitest';
import type { TestInstance, TestSystem } from './app.js';
import { ledger, type Made } from './follow-up.js';
import { SimulatorApi } from './simulator-api.js';
import type { SimulatorEvent, SimulatorPayment, SimulatorRefund } from './simulator.js';

/** Leaves room for a machine that is busy with other things. */
export const WAIT = { timeout: 30_000, interval: 50 };

export interface DeliveryOptions {
  readonly event_id?: string;
  readonly secret?: string;
  /** Seconds from now. */
  readonly signed_at_s?: number;
  /** Instead of the signed ones, or beside them; undefined: this one is left out. */
  readonly headers?: Readonly<Record<string, string | undefined>>;
  readonly provider?: string;
}

/** Sends a notification as the simulator would, to any instance and with whatever headers a test wants. */
export async function deliver(
  system: TestSystem,
  body: object | string | Buffer,
  options: DeliveryOptions & { readonly instance?: TestInstance } = {},
): Promise<{ readonly status: number; readonly text: string; readonly headers: Headers }> {
  const { instance = system.first, provider = 'sandbox' } = options;
  const sent = Buffer.isBuffer(body) || typeof body === 'string' ? body : JSON.stringify(body);
  const bytes = Buffer.from(sent);
  const headers = signedHeaders(sent, { secret: system.simulator.webhook_secret, ...options });
  // As bytes: fetch adds no content type of its own to them.
  const response = await fetch(`${instance.url}/webhooks/${provider}`, { method: 'POST', headers, body: bytes });
  return { status: response.status, text: await response.text(), headers: response.headers };
}

function signedHeaders(
  body: string | Buffer,
  { event_id = newEventId(), secret = '', signed_at_s = 0, headers = {} }: DeliveryOptions,
): Record<string, string> {
  const at = new Date(Date.now() + signed_at_s * 1000);
  const all: Record<string, string | undefined> = {
    'content-type': 'application/json',
    'webhook-id': event_id,
    'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
    'webhook-signature': sign(secret, event_id, at, body),
    ...headers,
  };
  return Object.fromEntries(
    Object.entries(all).filter((header): header is [string, string] => header[1] !== undefined),
  );
}

/** By the scheme's own library; it takes bytes for text, so those that are none are signed here. */
function sign(secret: string, event_id: string, at: Date, body: string | Buffer): string {
  if (typeof body === 'string') return new Webhook(secret).sign(event_id, at, body);
  const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
  const hmac = createHmac('sha256', key)
    .update(`${event_id}.${Math.floor(at.getTime() / 1000)}.`)
    .update(body);
  return `v1,${hmac.digest('base64')}`;
}

export function newEventId(): string {
  return `sbx_evt_${randomUUID()}`;
}

/** An event as the simulator words it. */
export function paymentEvent(type: string, payment: SimulatorPayment, more: Partial<SimulatorPayment> = {}): object {
  return { type: `payment.${type}`, timestamp: new Date().toISOString(), data: { payment: { ...payment, ...more } } };
}

/** What a payment looks like in an event of this type, as far as it does not look like it is. */
export function told(status: string, payment: SimulatorPayment, more: Partial<SimulatorPayment> = {}): object {
  const took = status === 'succeeded' ? payment.amount_minor : 0;
  const failure_code = status === 'failed' ? 'card_declined' : null;
  const next_action = status === 'requires_action' ? { type: 'redirect', url: 'http://provider.example/act' } : null;
  return paymentEvent(status, payment, { status, failure_code, next_action, amount_captured_minor: took, ...more });
}

export function refundEvent(
  payment: SimulatorPayment,
  refund: Partial<SimulatorRefund> &
    Pick<SimulatorRefund, 'id' | 'status' | 'amount_minor'> & { readonly currency?: string },
): object {
  const whole = { reference: null, payment_id: payment.id, currency: payment.currency, failure_code: null, ...refund };
  return { type: `refund.${refund.status}`, timestamp: new Date().toISOString(), data: { payment, refund: whole } };
}

/** A payment as the provider has it. */
export function atProvider(system: TestSystem, payment: Pick<Made, 'provider_payment_id'>): Promise<SimulatorPayment> {
  return new SimulatorApi(system.simulator.url).payment(payment.provider_payment_id);
}

/** The provider's events about a payment, as it sent them. */
export async function eventsAbout(
  system: TestSystem,
  payment: Pick<Made, 'external_payment_id'>,
): Promise<SimulatorEvent[]> {
  const events = await system.simulator.events();
  const { external_payment_id } = payment;
  return events.filter(({ body }) => body.data.payment.metadata.external_payment_id === external_payment_id);
}

/** Waits until every event about a payment has been taken, so many at least. */
export async function heard(
  system: TestSystem,
  payment: Pick<Made, 'external_payment_id'>,
  at_least = 1,
): Promise<SimulatorEvent[]> {
  return vi.waitFor(async () => {
    const events = await eventsAbout(system, payment);
    expect(events.length).toBeGreaterThanOrEqual(at_least);
    expect(events.every(({ is_delivered }) => is_delivered)).toBe(true);
    return events;
  }, WAIT);
}

export interface EventRow {
  readonly event_id: string;
  readonly type: string;
  readonly outcome: string;
  readonly failures: number;
  readonly last_error: string | null;
  readonly payment_id: string | null;
  readonly operation_id: string | null;
  readonly fact: Readonly<Record<string, unknown>> | null;
}

export async function eventRow(system: TestSystem, event_id: string): Promise<EventRow | undefined> {
  return (await system.query<EventRow>('select * from provider_event where event_id = $1', [event_id]))[0];
}

/** Whether an event is marked as processed: a later delivery of it does nothing. */
export async function isMarked(system: TestSystem, event_id: string): Promise<boolean> {
  const rows = await system.query('select 1 from processed_event where event_id = $1', [event_id]);
  return rows.length === 1;
}

/** All that our rows and the provider's ledger say of a payment, short enough to compare at a glance. */
export async function stateOf(system: TestSystem, payment: Pick<Made, 'id' | 'external_payment_id'>) {
  const [row] = await system.query<{
    status: string;
    amount_captured_minor: bigint;
    amount_refunded_minor: bigint;
    refund_reserved_minor: bigint;
  }>('select * from payment where id = $1', [payment.id]);
  const operations = await system.query<{ kind: string; status: string; amount_minor: bigint }>(
    'select kind, status, amount_minor from operation where payment_id = $1 order by created_at, id',
    [payment.id],
  );
  const anomalies = await system.query<{ kind: string }>(
    'select kind from anomaly where payment_id = $1 order by created_at, id',
    [payment.id],
  );
  const events = await system.query<{ type: string }>(
    'select type from outbox_event where key = $1 order by sequence, id',
    [payment.id],
  );
  return {
    status: row?.status,
    captured: Number(row?.amount_captured_minor),
    refunded: Number(row?.amount_refunded_minor),
    reserved: Number(row?.refund_reserved_minor),
    operations: operations.map(({ kind, status, amount_minor }) => `${kind} ${status} ${amount_minor}`),
    anomalies: anomalies.map(({ kind }) => kind),
    events: events.map(({ type }) => type.replace(/\.v1$/, '')),
    movements: (await ledger(system, payment)).map(({ kind, amount_minor }) => `${kind} ${amount_minor}`),
  };
}

/** How often webhooks of the sandbox ended this way in an instance. */
export async function counted(instance: TestInstance, outcome: string): Promise<number> {
  const metric = await instance.metrics.registry.getSingleMetric('oncepay_webhooks_total')?.get();
  const found = metric?.values.find(({ labels }) => labels.outcome === outcome && labels.provider === 'sandbox');
  return found?.value ?? 0;
}
