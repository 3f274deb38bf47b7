import { randomUUID } from 'node:crypto';
import { chargeProviderKey, operationProviderKey } from '../../src/domain/command-hash.js';
import type { SimulatorProcess } from '../support/simulator.js';
import { TEST_API_KEY } from '../support/service.js';

export const INSTALLATION_ID = 'crash-matrix';
export const KINDS = ['charge', 'pay again', 'capture', 'cancel', 'refund'] as const;
export type Kind = (typeof KINDS)[number];

type Json = Readonly<Record<string, unknown>>;

/** One money request of a cell, ready to be sent as often as it takes, to any instance. */
export interface MoneyRequest {
  readonly kind: Kind;
  readonly key: string;
  readonly path: string;
  readonly body: Json;
  readonly external_payment_id: string;
  /** Null for a charge: the payment does not exist before. */
  readonly payment_id: string | null;
}

export interface Answered {
  readonly status: number;
  readonly text: string;
  readonly json: Json;
  readonly headers: Headers;
}

export async function send(
  url: string,
  { key, path, body }: Pick<MoneyRequest, 'key' | 'path' | 'body'>,
): Promise<Answered> {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${TEST_API_KEY}`, 'content-type': 'application/json', 'idempotency-key': key },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(30_000),
  });
  const text = await response.text();
  return { status: response.status, text, json: JSON.parse(text) as Json, headers: response.headers };
}

/** Brings a payment to where the kind can be asked for, and makes the request. `slow`: what the provider does with it. */
export async function prepare(
  url: string,
  simulator: SimulatorProcess,
  kind: Kind,
  slow: string | null,
): Promise<MoneyRequest> {
  const external_payment_id = `order-${randomUUID()}`;
  const charge = { amount: '10.00', currency: 'EUR', customer_id: 'customer-1', external_payment_id };
  const key = randomUUID();
  const made = { kind, key, external_payment_id };
  if (kind === 'charge')
    return { ...made, path: '/payments', body: { ...charge, payment_method: slow ?? 'pm_success' }, payment_id: null };
  if (kind === 'pay again') {
    await mustBe(
      send(url, {
        key: randomUUID(),
        path: '/payments',
        body: { ...charge, payment_method: 'pm_decline_card_declined' },
      }),
      'failed',
    );
    return { ...made, path: '/payments', body: { ...charge, payment_method: slow ?? 'pm_success' }, payment_id: null };
  }
  const capture = kind === 'refund' ? 'automatic' : 'manual';
  const before = await mustBe(
    send(url, { key: randomUUID(), path: '/payments', body: { ...charge, capture } }),
    kind === 'refund' ? 'succeeded' : 'authorized',
  );
  if (slow !== null) await simulator.next(String(before.provider_payment_id), kind, slow);
  const route = kind === 'refund' ? 'refunds' : kind;
  return { ...made, path: `/payments/${String(before.id)}/${route}`, body: {}, payment_id: String(before.id) };
}

async function mustBe(answer: Promise<Answered>, status: string): Promise<Json> {
  const { json, text } = await answer;
  if (json.status !== status) throw new Error(`Setting up: expected ${status}, got ${text}`);
  return json;
}

/** The provider key of the request's operation: derived from what the caller named, so that the test knows it too. */
export function providerKeyOf({ kind, key, external_payment_id }: MoneyRequest): string {
  const parts = { installation_id: INSTALLATION_ID, client_id: 'default', provider: 'sandbox', external_payment_id };
  if (kind === 'charge') return chargeProviderKey({ ...parts, try_number: 1 });
  if (kind === 'pay again') return chargeProviderKey({ ...parts, try_number: 2 });
  return operationProviderKey({ ...parts, kind, idempotency_key: key });
}

/** How often the request's operation moved money at the provider, by its ledger. */
export async function movementsOf(simulator: SimulatorProcess, request: MoneyRequest): Promise<number> {
  return (await simulator.movements({ reference: providerKeyOf(request) })).length;
}

/** How often the provider has received the request's operation. */
export async function callsOf(simulator: SimulatorProcess, request: MoneyRequest): Promise<number> {
  return (await simulator.calls({ idempotency_key: providerKeyOf(request) })).length;
}
