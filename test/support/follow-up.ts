import { randomUUID } from 'node:crypto';
import request from 'supertest';
import { expect, vi } from 'vitest';
import type { Movement } from '../../src/simulator/records.js';
import { newCharge, referencesOf, type TestInstance, type TestSystem } from './app.js';

type Json = Readonly<Record<string, unknown>>;

export interface SendOptions {
  readonly key?: string;
  readonly api_key?: string;
  readonly instance?: TestInstance;
}

/** Sends a money request about a payment; without a body none is sent. */
export function send(system: TestSystem, path: string, body?: unknown, options: SendOptions = {}): request.Test {
  const { key = randomUUID(), api_key = system.api_key, instance = system.first } = options;
  const sent = request(instance.url).post(path).set('authorization', `Bearer ${api_key}`).set('idempotency-key', key);
  return body === undefined ? sent : sent.send(body as object);
}

export const capture = (system: TestSystem, id: string, body?: Json, options?: SendOptions): request.Test =>
  send(system, `/payments/${id}/capture`, body, options);
export const cancel = (system: TestSystem, id: string, body?: Json, options?: SendOptions): request.Test =>
  send(system, `/payments/${id}/cancel`, body, options);
export const refund = (system: TestSystem, id: string, body: Json = {}, options?: SendOptions): request.Test =>
  send(system, `/payments/${id}/refunds`, body, options);

export function get(system: TestSystem, path: string, api_key = system.api_key): request.Test {
  return request(system.first.url).get(path).set('authorization', `Bearer ${api_key}`);
}

export interface Made {
  readonly id: string;
  readonly external_payment_id: string;
  readonly provider_payment_id: string;
  readonly body: Json;
}

/** A payment that is charged, or held with `capture: manual`. */
export async function made(system: TestSystem, more: Json = {}, options: SendOptions = {}): Promise<Made> {
  const body = newCharge(more);
  const answer = await system.charge(body, options).expect(201);
  const { id, external_payment_id, provider_payment_id } = answer.body;
  return { id, external_payment_id, provider_payment_id, body };
}

/** Everything that really moved at the provider for a payment: all its tries, with captures, cancels and refunds. */
export async function ledger(
  system: TestSystem,
  { external_payment_id }: Pick<Made, 'external_payment_id'>,
  client_id = 'default',
): Promise<Movement[]> {
  const references = referencesOf(external_payment_id, client_id);
  const all = await system.simulator.movements();
  const ids = new Set(all.filter(({ reference }) => references.has(reference ?? '')).map((move) => move.payment_id));
  return all.filter(({ payment_id }) => ids.has(payment_id));
}

/** The movements as `kind amount`, for comparison at a glance. */
export async function moved(system: TestSystem, payment: Pick<Made, 'external_payment_id'>): Promise<string[]> {
  return (await ledger(system, payment)).map(({ kind, amount_minor }) => `${kind} ${amount_minor}`);
}

/** The payment's counters and its operations other than the charge, as our rows have them. */
export async function rows(system: TestSystem, payment_id: string) {
  const [payment] = await system.query<{
    status: string;
    version: number;
    amount_captured_minor: bigint;
    amount_refunded_minor: bigint;
    refund_reserved_minor: bigint;
  }>('select * from payment where id = $1', [payment_id]);
  const operations = await system.query<{
    id: string;
    kind: string;
    origin: string;
    status: string;
    amount_minor: bigint;
    provider_key: string;
    idempotency_key: string | null;
    attempts_started: number;
    check_at: Date | null;
    needs_review_at: Date | null;
    failure_code: string | null;
  }>(`select * from operation where payment_id = $1 and kind <> 'charge' order by created_at, id`, [payment_id]);
  return { payment: payment!, operations };
}

/** Repeats what was asked, with its key, until it is answered finally. */
export async function untilFinal(ask: () => request.Test): Promise<request.Response> {
  return vi.waitFor(
    async () => {
      const answer = await ask();
      const isOpen =
        answer.status === 202 ||
        answer.status >= 500 ||
        ['idempotency_key_in_progress', 'operation_in_progress'].includes(answer.body.code);
      expect(isOpen, `still ${answer.status}: ${answer.text}`).toBe(false);
      return answer;
    },
    { timeout: 30_000, interval: 50 },
  );
}
