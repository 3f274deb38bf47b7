import { z } from 'zod';
import type { ChargeFact } from '../../domain/fact.js';
import { ProviderError } from '../provider.js';
import type { Reply } from './client.js';
import { failureOf } from './failures.js';
import { chargeFact, paymentShape } from './shapes.js';

const errorShape = z.object({
  error: z.object({ code: z.string(), message: z.string() }),
  /** Where its state is the reason. */
  payment: paymentShape.optional().catch(undefined),
});

/** Errors that are never an outcome of a payment, with our words for them. */
const NO_OUTCOME: ReadonlyMap<string, string> = new Map([
  ['key_in_use', 'key_in_use'],
  ['key_parameters_mismatch', 'key_mismatch'],
]);
/** Only these are about the very request; 401, 403, 429 and the like are about us, or about this moment. */
const REFUSALS = new Set([400, 402, 404, 409, 422]);

/** What an answer other than success means for this attempt. */
export function refusal(reply: Reply): ProviderError {
  const code = codeOf(reply);
  // Without the sandbox's own words it may be anybody's answer, a proxy's for example.
  if (code === undefined || !REFUSALS.has(reply.status))
    return new ProviderError('unknown', reasonOf(reply), said(reply));
  const reason = NO_OUTCOME.get(code);
  if (reason !== undefined) return new ProviderError('unknown', reason, said(reply));
  return new ProviderError('refused', code, said(reply), { failure: failureOf(code) });
}

/** The same where something was only asked: whatever the answer is, it says nothing about what was asked. */
export function askingError(reply: Reply): ProviderError {
  return new ProviderError('unknown', reasonOf(reply), `${said(reply)} (asked only)`);
}

/** The charge, where a capture or cancel was refused because it has ended already. */
export function endedCharge(reply: Reply): ChargeFact | undefined {
  const { error, payment } = errorShape.safeParse(reply.body).data ?? {};
  const isEnded = payment?.status === 'succeeded' || payment?.status === 'canceled';
  return isEnded && error?.code === 'invalid_state' ? chargeFact(payment) : undefined;
}

export function codeOf(reply: Reply): string | undefined {
  return errorShape.safeParse(reply.body).data?.error.code;
}

function reasonOf({ status }: Reply): string {
  if (status === 401 || status === 403) return 'not_permitted';
  return status === 429 ? 'rate_limited' : `http_${status}`;
}

function said(reply: Reply): string {
  return ['the sandbox answered', reply.status, codeOf(reply)].filter((word) => word !== undefined).join(' ');
}
