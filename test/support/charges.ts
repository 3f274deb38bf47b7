import { randomUUID } from 'node:crypto';
import { uuidv7 } from 'uuidv7';
import { finalAnswer } from '../../src/contract/answer.js';
import { applyOutcome, type Outcome } from '../../src/domain/apply-outcome.js';
import { Change } from '../../src/domain/change.js';
import type { ChargeCommand } from '../../src/domain/command.js';
import { keyHash } from '../../src/domain/command-hash.js';
import type { Connection } from '../../src/database/transaction.js';
import { outboxRow } from '../../src/payments/outbox-rows.js';
import { type BeginChargeItem, type BeginChargeResult, beginCharges } from '../../src/store/begin-charge.js';
import { type NewChargeItem } from '../../src/store/reserve-and-begin.js';
import { type Lease, reserve, type ReserveItem } from '../../src/store/reserve.js';
import type { SettleItem } from '../../src/store/settle.js';
import { aCommand, chargeFact } from './domain.js';

export const LEASE_MS = 60_000;

/** What a charge's statements are given, as the use cases make it. */
export function reserveItem(fields: Partial<ReserveItem> = {}): ReserveItem {
  return {
    client_id: 'default',
    key: `key-${randomUUID()}`,
    kind: 'charge',
    command_hash: Buffer.alloc(32, 1),
    token: uuidv7(),
    payment_id: uuidv7(),
    operation_id: uuidv7(),
    success_status: 201,
    ...fields,
  };
}

export function beginItem(lease: Lease, command: ChargeCommand = aCommand()): BeginChargeItem {
  return {
    lease,
    command,
    key_hash: keyHash(lease.client_id, lease.key),
    provider_key: `provider-key-${lease.operation_id}`,
    origin: { saga_id: null, step_name: null, traceparent: null },
  };
}

/** A charge to reserve and begin at once. */
export function newChargeItem(fields: Partial<ReserveItem> = {}, command: ChargeCommand = aCommand()): NewChargeItem {
  const lease = reserveItem(fields);
  return { ...beginItem(lease, command), lease };
}

export type Begun = Extract<BeginChargeResult, { type: 'begun' }> & { readonly lease: Lease };

/** So many charges that are reserved and begun. */
export async function beginMany(connection: Connection, count: number): Promise<Begun[]> {
  const items = Array.from({ length: count }, () => reserveItem());
  await reserve(connection, items, LEASE_MS);
  const begun = await beginCharges(
    connection,
    items.map((item) => beginItem(item)),
  );
  return begun.map((result, n) => {
    if (result.type !== 'begun') throw new Error(`not begun: ${result.type}`);
    return { ...result, lease: items[n]! };
  });
}

/** The end of a charge as its own request writes it. */
export function settleItem(begun: Begun, outcome: Outcome = { type: 'fact', fact: chargeFact() }): SettleItem {
  const now = new Date(begun.payment.created_at.getTime() + 25);
  const change = new Change(begun.payment, [begun.operation], now, 'request');
  applyOutcome(change, begun.operation.id, outcome);
  const operation = change.operation(begun.operation.id);
  const expires_at = new Date(now.getTime() + 72 * 60 * 60_000);
  return {
    token: begun.lease.token,
    version_read: begun.payment.version,
    payment: change.payment,
    history: change.history[0] ?? null,
    operation,
    attempt: { action: 'send', at: now.toISOString(), duration_ms: 20, outcome: operation.status },
    check_at: null,
    answer: { ...finalAnswer(change.payment, operation, uuidv7()), expires_at },
    event: outboxRow(change.payment, operation, change.events[0]!),
  };
}
