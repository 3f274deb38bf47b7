import { randomUUID } from 'node:crypto';
import { vi } from 'vitest';
import type { SimulatorPayment, SimulatorRefund } from './simulator.js';

export interface ApiAnswer {
  readonly status: number;
  readonly isReplay: boolean;
  readonly payment: SimulatorPayment;
  readonly code: string | undefined;
}

/** What a GET may hold: one payment or refund, a list of refunds, an error. */
type Got = Partial<SimulatorPayment> & {
  readonly data?: readonly SimulatorRefund[];
  readonly error?: { readonly code: string };
};

/** Waits until the check passes; how long it may take leaves room for a slow machine. */
export async function eventually(check: () => unknown): Promise<void> {
  await vi.waitFor(check, { timeout: 10_000, interval: 20 });
}

/** Speaks the simulator's API as a service does, without any of our adapter. */
export class SimulatorApi {
  constructor(private readonly url: string) {}

  newReference(): string {
    return `ref-${randomUUID()}`;
  }

  /** 'no_answer': the connection was dropped, or nothing came within `limit_ms`. */
  async post(path: string, key: string, body: object, limit_ms = 5_000): Promise<ApiAnswer | 'no_answer'> {
    try {
      const response = await fetch(this.url + path, {
        method: 'POST',
        headers: { 'idempotency-key': key },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(limit_ms),
      });
      const answer = (await response.json()) as SimulatorPayment & { error?: { code: string } };
      const isReplay = response.headers.get('idempotent-replayed') === 'true';
      return { status: response.status, isReplay, payment: answer, code: answer.error?.code };
    } catch {
      return 'no_answer';
    }
  }

  async charge(reference: string, more: object = {}, limit_ms?: number): Promise<ApiAnswer | 'no_answer'> {
    const body = { amount_minor: 1000, currency: 'EUR', reference, metadata: { reference }, ...more };
    return this.post('/payments', reference, body, limit_ms);
  }

  /** A charge that must be answered. */
  async charged(more: object = {}): Promise<SimulatorPayment> {
    const answer = await this.charge(this.newReference(), more);
    if (answer === 'no_answer' || answer.status !== 201) throw new Error(`not charged: ${JSON.stringify(answer)}`);
    return answer.payment;
  }

  async get(path: string): Promise<{ status: number; body: Got }> {
    const response = await fetch(this.url + path);
    return { status: response.status, body: (await response.json()) as Got };
  }

  async payment(id: string): Promise<SimulatorPayment> {
    return (await this.get(`/payments/${id}`)).body as SimulatorPayment;
  }
}
