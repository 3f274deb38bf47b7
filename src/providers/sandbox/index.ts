import type { ChargeFact } from '../../domain/fact.js';
import type { CallOptions, ChargeRequest, PaymentProvider } from '../provider.js';
import { type Call, type Reply, SandboxClient } from './client.js';
import { retrieve } from './look-up.js';
import { endedCharge, refusal } from './refusals.js';
import { chargeFact, paymentShape, readAs, refundFact, refundShape } from './shapes.js';
import { decodeSecrets, parseWebhook } from './webhook.js';

const KEY_MEMORY_MS = 24 * 60 * 60 * 1000;

export interface SandboxOptions {
  /** `http://host:port` of the simulator. */
  readonly base_url: string;
  /** `whsec_…`, newest first. None: its webhooks are refused. */
  readonly webhook_secrets: readonly string[];
}

/**
 * The adapter for the simulated provider.
 * @throws Error where the address or a secret can't be used
 */
export function createSandboxProvider(options: SandboxOptions): PaymentProvider {
  const client = new SandboxClient(options.base_url);
  const keys = decodeSecrets(options.webhook_secrets);
  return {
    name: 'sandbox',
    keyMemory_ms: KEY_MEMORY_MS,
    charge: async (request, call) => {
      return chargeFact(readAs(paymentShape, succeeded(await post(client, '/payments', chargeBody(request), call))));
    },
    capture: async (request, call) => {
      const path = `${pathOf(request.provider_payment_id)}/capture`;
      return changed(await post(client, path, { amount_minor: Number(request.amount_minor) }, call));
    },
    cancel: async (request, call) => {
      return changed(await post(client, `${pathOf(request.provider_payment_id)}/cancel`, {}, call));
    },
    refund: async (request, call) => {
      const body = { amount_minor: Number(request.amount_minor), reference: request.metadata.reference };
      const reply = await post(client, `${pathOf(request.provider_payment_id)}/refunds`, body, call);
      return refundFact(readAs(refundShape, succeeded(reply)));
    },
    retrieve: async (target, { timeout_ms }) => retrieve(client, target, timeout_ms),
    parseWebhook: (headers, rawBody) => parseWebhook(keys, headers, rawBody),
  };
}

async function post(client: SandboxClient, path: string, body: Call['body'], options: CallOptions): Promise<Reply> {
  const { provider_key: idempotency_key, timeout_ms } = options;
  return client.call({ method: 'POST', path, body: body ?? {}, idempotency_key, timeout_ms });
}

function pathOf(provider_payment_id: string): string {
  return `/payments/${encodeURIComponent(provider_payment_id)}`;
}

/** Nothing that a lost database would make anew: the request repeated is the same request. */
function chargeBody(request: ChargeRequest): Call['body'] {
  const { reference, installation_id, external_payment_id } = request.metadata;
  return {
    amount_minor: Number(request.amount_minor),
    currency: request.currency,
    ...(request.payment_method !== null && { payment_method: request.payment_method }),
    capture: request.capture,
    reference,
    metadata: { reference, installation_id, external_payment_id },
    ...(request.return_url !== null && { return_url: request.return_url }),
  };
}

/** A capture's or cancel's charge. One that is refused because the charge has ended already: what it had become. */
function changed(reply: Reply): ChargeFact {
  return endedCharge(reply) ?? chargeFact(readAs(paymentShape, succeeded(reply)));
}

function succeeded(reply: Reply): Reply {
  if (reply.status !== 200 && reply.status !== 201) throw refusal(reply);
  return reply;
}
