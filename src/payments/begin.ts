import type { Answer } from '../contract/answer.js';
import type { ChargeCommand } from '../domain/command.js';
import { chargeProviderKey, keyHash } from '../domain/command-hash.js';
import type { OncepayError } from '../domain/errors.js';
import type { BeginChargeItem, Origin } from '../store/begin-charge.js';
import type { Lease } from '../store/reserve.js';
import type { PaymentsContext } from './context.js';

export const NO_ORIGIN: Origin = { saga_id: null, step_name: null, traceparent: null };

/** What beginning an operation led to, where its payment was there already. */
export type Begun =
  /** The operation is durable: pursue it. `first`: its first attempt is counted and nothing was sent. */
  | { readonly type: 'pursue'; readonly payment_id: string; readonly operation_id: string; readonly first: boolean }
  | { readonly type: 'answer'; readonly answer: Answer }
  /** Refused for the moment; the key is free again. */
  | { readonly type: 'refused'; readonly error: OncepayError }
  | { readonly type: 'lease_lost' }
  /** What was in the way is gone: begin anew. */
  | { readonly type: 'vanished' };

/** Everything that the begin statement writes; made once, so that running it again writes the same. */
export function beginItem<Held extends { readonly lease: Lease }>(
  ctx: PaymentsContext,
  held: Held,
  command: ChargeCommand,
  origin: Origin,
): BeginChargeItem & { readonly lease: Held['lease'] } {
  const lease: Held['lease'] = held.lease;
  return {
    lease,
    command,
    origin,
    key_hash: keyHash(lease.client_id, lease.key),
    provider_key: chargeKey(ctx, lease.client_id, command, 1),
  };
}

/** The provider key of a try: derived from what the caller named, so that a database that forgot makes the same again. */
export function chargeKey(ctx: PaymentsContext, client_id: string, command: ChargeCommand, try_number: number): string {
  const { provider, external_payment_id } = command;
  return chargeProviderKey({
    installation_id: ctx.installation_id,
    client_id,
    provider,
    external_payment_id,
    try_number,
  });
}
