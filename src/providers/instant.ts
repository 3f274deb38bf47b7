import { uuidv7 } from 'uuidv7';
import type { ChargeFact } from '../domain/fact.js';
import { InvalidSignature, type PaymentProvider, ProviderError } from './provider.js';

/**
 * A provider within the process that answers at once, says yes to everything and keeps nothing: for benchmarks only,
 * where the provider must not be what is measured. What it would have to remember of a charge stands in its id.
 */
export function createInstantProvider(): PaymentProvider {
  return {
    name: 'instant',
    // It can't tell a repeated request from a new one, and no money moves either way.
    keyMemory_ms: 24 * 60 * 60 * 1000,
    async charge({ amount_minor, currency, capture }) {
      const provider_payment_id = `ins_${uuidv7()}_${amount_minor}_${currency}`;
      const status = capture === 'automatic' ? 'succeeded' : 'authorized';
      return fact(provider_payment_id, status, status === 'succeeded' ? amount_minor : 0n);
    },
    async capture({ provider_payment_id, amount_minor }) {
      return fact(provider_payment_id, 'succeeded', amount_minor);
    },
    async cancel({ provider_payment_id }) {
      return fact(provider_payment_id, 'canceled', 0n);
    },
    async refund({ provider_payment_id, amount_minor, currency }) {
      const provider_refund_id = `insr_${uuidv7()}`;
      const status = 'succeeded';
      return { type: 'refund', status, provider_refund_id, provider_payment_id, amount_minor, currency, failure: null };
    },
    async retrieve() {
      return 'not_found';
    },
    parseWebhook() {
      throw new InvalidSignature('the instant provider sends no notifications');
    },
  };
}

function fact(provider_payment_id: string, status: ChargeFact['status'], amount_captured_minor: bigint): ChargeFact {
  const [, , amount = '', currency = ''] = provider_payment_id.split('_');
  if (!/^\d+$/.test(amount)) throw new ProviderError('refused', 'not_found', 'not a charge of the instant provider');
  return {
    type: 'charge',
    status,
    provider_payment_id,
    amount_minor: BigInt(amount),
    currency,
    amount_captured_minor,
    amount_refunded_minor: 0n,
    failure: null,
    next_action: null,
    closed: status === 'canceled',
  };
}
