import { newId } from '../domain/id.js';
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
      const provider_payment_id = `ins_${newId()}_${amount_minor}_${currency}`;
      const status = capture === 'automatic' ? 'succeeded' : 'authorized';
      const captured_minor = status === 'succeeded' ? amount_minor : 0n;
      return fact({ provider_payment_id, amount_minor, currency }, status, captured_minor);
    },
    async capture({ provider_payment_id, amount_minor }) {
      return fact(remembered(provider_payment_id), 'succeeded', amount_minor);
    },
    async cancel({ provider_payment_id }) {
      return fact(remembered(provider_payment_id), 'canceled', 0n);
    },
    async refund({ provider_payment_id, amount_minor, currency }) {
      const provider_refund_id = `insr_${newId()}`;
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

type Charged = Pick<ChargeFact, 'provider_payment_id' | 'amount_minor' | 'currency'>;

function remembered(provider_payment_id: string): Charged {
  const [, amount, currency] = /^ins_[0-9a-f-]{36}_(\d+)_([A-Z]{3})$/.exec(provider_payment_id) ?? [];
  if (amount === undefined || currency === undefined) {
    throw new ProviderError('refused', 'not_found', 'not a charge of the instant provider');
  }
  return { provider_payment_id, amount_minor: BigInt(amount), currency };
}

function fact(charged: Charged, status: ChargeFact['status'], amount_captured_minor: bigint): ChargeFact {
  return {
    type: 'charge',
    status,
    ...charged,
    amount_captured_minor,
    amount_refunded_minor: 0n,
    failure: null,
    next_action: null,
    closed: status === 'canceled',
  };
}
