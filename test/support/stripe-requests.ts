import { type ChargeRequest, ProviderError, type RetrieveTarget } from '../../src/providers/provider.js';
import type { OperationKind } from '../../src/domain/payment.js';

/** A charge of 10.00 USD by a card that works, with what the test names instead. */
export function chargeRequest(reference: string, differs: Partial<ChargeRequest> = {}): ChargeRequest {
  return {
    amount_minor: 1000n,
    currency: 'USD',
    payment_method: 'pm_card_visa',
    capture: 'automatic',
    return_url: null,
    metadata: { reference, installation_id: 'inst_1', external_payment_id: 'order-1' },
    ...differs,
  };
}

/** Whom to ask about: a charge known by its `id`, or only by our `reference`. */
export function target(about: {
  kind?: OperationKind;
  id?: string;
  reference?: string;
  charge_reference?: string;
  refund_id?: string;
}): RetrieveTarget {
  const reference = about.reference ?? 'unknown';
  return {
    kind: about.kind ?? 'charge',
    reference,
    charge_reference: about.charge_reference ?? reference,
    provider_payment_id: about.id ?? null,
    provider_refund_id: about.refund_id ?? null,
    currency: 'USD',
    external_payment_id: 'order-1',
    installation_id: 'inst_1',
  };
}

/** The ProviderError that a call ends in. */
export async function providerErrorOf(call: Promise<unknown>): Promise<ProviderError> {
  const answer = await call.then(
    (value) =>
      new Error(
        `no error: ${JSON.stringify(value, (_, field: unknown) => (typeof field === 'bigint' ? String(field) : field))}`,
      ),
    (error: unknown) => error,
  );
  if (answer instanceof ProviderError) return answer;
  throw answer;
}
