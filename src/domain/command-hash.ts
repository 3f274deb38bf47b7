import { hash } from 'node:crypto';
import canonicalize from 'canonicalize';
import type { OperationKind } from './payment.js';

/**
 * Each hash begins with its own tag and version, so that a hash of one sort is never one of another, and a new canonical form gets a
 * new version instead of silently changing what an old key stands for. Parts are members of a JSON array: unlike
 * joined text, two different lists of parts never give the same bytes.
 */
const COMMAND_TAG = 'oncepay.command.v1';
const KEY_TAG = 'oncepay.key.v1';
const CHARGE_TAG = 'oncepay.provider-key.charge.v1';
const OPERATION_TAG = 'oncepay.provider-key.operation.v1';

/**
 * SHA-256 over the canonical form (RFC 8785) of a command: kind, target (a payment's id; null for a charge) and the
 * validated body *as it was sent*: no defaults filled in (a changed default must not change a hash), amounts already
 * normalised to the currency's digits. Member order does not matter, array order does. 32 bytes.
 */
export function commandHash(
  kind: OperationKind,
  target: string | null,
  body: Readonly<Record<string, unknown>>,
): Buffer {
  return sha256(canonicalize([COMMAND_TAG, kind, target, body]) ?? '');
}

/** SHA-256 over client and idempotency key: stands on the operation for ever. 32 bytes. */
export function keyHash(client_id: string, key: string): Buffer {
  return sha256(JSON.stringify([KEY_TAG, client_id, key]));
}

/** What the provider key of a charge is derived from: nothing that a lost database would make anew. */
export interface ChargeKeyParts {
  readonly installation_id: string;
  readonly client_id: string;
  readonly provider: string;
  readonly external_payment_id: string;
  /** 1 for the first try; one more each time that the payment is paid again after a decline. */
  readonly try_number: number;
}

/** The provider key of one try of a charge: 64 hexadecimal digits. */
export function chargeProviderKey(parts: ChargeKeyParts): string {
  const { installation_id, client_id, provider, external_payment_id, try_number } = parts;
  return hash(
    'sha256',
    JSON.stringify([CHARGE_TAG, installation_id, client_id, provider, external_payment_id, try_number]),
  );
}

/** What the provider key of a capture, cancel or refund is derived from. */
export interface OperationKeyParts {
  readonly installation_id: string;
  readonly client_id: string;
  readonly provider: string;
  readonly external_payment_id: string;
  readonly kind: Exclude<OperationKind, 'charge'>;
  readonly idempotency_key: string;
}

/** The provider key of a capture, cancel or refund: 64 hexadecimal digits. */
export function operationProviderKey(parts: OperationKeyParts): string {
  const { installation_id, client_id, provider, external_payment_id, kind, idempotency_key } = parts;
  return hash(
    'sha256',
    JSON.stringify([OPERATION_TAG, installation_id, client_id, provider, external_payment_id, kind, idempotency_key]),
  );
}

function sha256(text: string): Buffer {
  return hash('sha256', text, 'buffer');
}
