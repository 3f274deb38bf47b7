import type { z } from 'zod';
import type { ChargeFact, Fact } from '../../domain/fact.js';
import type { RetrieveTarget } from '../provider.js';
import type { SandboxClient } from './client.js';
import { askingError, codeOf } from './refusals.js';
import { chargeFact, listOf, paymentShape, readAs, refundFact, refundShape } from './shapes.js';

/** Asks by the sandbox's own name where we know it, since that look-up does not lag, else by reference. */
export async function retrieve(
  client: SandboxClient,
  target: RetrieveTarget,
  timeout_ms: number,
): Promise<Fact | 'not_found'> {
  if (target.kind === 'refund') {
    const where = { path: '/refunds', id: target.provider_refund_id, reference: target.reference };
    const latest = (await lookUp(client, where, refundShape, timeout_ms)).at(-1);
    return latest ? refundFact(latest) : 'not_found';
  }
  const where = { path: '/payments', id: target.provider_payment_id, reference: target.charge_reference };
  const payments = await lookUp(client, where, paymentShape, timeout_ms);
  return mostAdvanced(payments.map(chargeFact)) ?? 'not_found';
}

async function lookUp<Shape extends z.ZodType>(
  client: SandboxClient,
  { path, id, reference }: { readonly path: string; readonly id: string | null; readonly reference: string },
  shape: Shape,
  timeout_ms: number,
): Promise<z.output<Shape>[]> {
  const isById = id !== null && id !== '';
  const query = isById ? `${path}/${encodeURIComponent(id)}` : `${path}?reference=${encodeURIComponent(reference)}`;
  const reply = await client.call({ method: 'GET', path: query, timeout_ms });
  if (isById && reply.status === 404 && codeOf(reply) === 'not_found') return [];
  if (reply.status !== 200) throw askingError(reply);
  return isById ? [readAs(shape, reply)] : readAs(listOf(shape), reply).data;
}

const ORDER: readonly ChargeFact['status'][] = [
  'canceled',
  'failed',
  'requires_action',
  'processing',
  'authorized',
  'succeeded',
];

/** Several under one reference only where the sandbox forgot its keys: then the one that took money counts. */
function mostAdvanced(facts: readonly ChargeFact[]): ChargeFact | undefined {
  let best: ChargeFact | undefined;
  for (const fact of facts) {
    if (!best || ORDER.indexOf(fact.status) > ORDER.indexOf(best.status)) best = fact;
  }
  return best;
}
