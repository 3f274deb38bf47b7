import type pg from 'pg';
import { int2Array, textArray, uuidArray } from '../database/arrays.js';
import {
  BEGIN_ARRAYS,
  BEGIN_COLUMNS,
  beginColumns,
  type BeginChargeItem,
  type BeginChargeResult,
  begunNow,
  insertOperations,
  insertPayments,
} from './begin-charge.js';
import { type Lease, reserve, type ReserveItem, type ReserveResult } from './reserve.js';

// Reserve and begin at once, for a charge that nobody has asked for before: nearly all. Records first, then payments, then
// operations, the order that everybody keeps; whose key is taken, and whose payment is there already, inserts nothing.
const RESERVE_AND_BEGIN = {
  name: 'reserve_and_begin_charge',
  text: `
with i as materialized (
  select * from unnest(${BEGIN_ARRAYS}, $23::smallint[]) as i(${BEGIN_COLUMNS}, success_status)
), clock as materialized (
  select date_trunc('milliseconds', clock_timestamp()) as now, clock_timestamp() + $24::int * interval '1 millisecond' as lease_until
), rec as (
  insert into idempotency_record (client_id, key, kind, command_hash, state, lease_token, lease_until, payment_id, operation_id, success_status)
  select client_id, key, 'charge', command_hash, 'in_progress', token, clock.lease_until, payment_id, operation_id, success_status
  from i, clock
  order by client_id collate "C", key collate "C"
  on conflict (client_id, key) do nothing
  returning lease_token
), pay as (${insertPayments('i', 'where (token in (select lease_token from rec)) is true')}
), op as (${insertOperations('i')}
)
select i.token, (i.operation_id in (select id from op)) is true as begun, clock.now
from i, clock where (i.token in (select lease_token from rec)) is true`,
};

// The background job finds these records by their operations' check_at; one without an operation it finds by recover_at.
const WATCH = {
  name: 'record_watch',
  text: `
with l as (
  select r.client_id, r.key from unnest($1::text[], $2::text[], $3::uuid[]) as i(client_id, key, token)
  join idempotency_record r on r.client_id = i.client_id and r.key = i.key
  where r.lease_token = i.token
  order by r.client_id, r.key for no key update of r
)
update idempotency_record r set recover_at = r.lease_until from l where r.client_id = l.client_id and r.key = l.key`,
};

/** A charge to reserve and begin. Its lease is what the reservation asks for. */
export interface NewChargeItem extends BeginChargeItem {
  readonly lease: ReserveItem;
}

/** How the key stands; where it was reserved and not taken over, how its charge began. */
export interface NewChargeResult {
  readonly reserved: ReserveResult;
  readonly begun: BeginChargeResult | null;
}

/**
 * Reserves keys and begins their charges in one statement and one commit, at most one item per key and per payment in a
 * call. Where a key is taken it goes on as `reserve` does; where the payment exists, the key alone is reserved (`exists`).
 */
export async function reserveAndBeginCharges(
  connection: pg.Pool | pg.PoolClient,
  items: readonly NewChargeItem[],
  lease_ms: number,
): Promise<NewChargeResult[]> {
  const success = int2Array(items.map((item) => item.lease.success_status));
  const values = [...beginColumns(items), success, lease_ms];
  const { rows } = await connection.query<{ token: string; begun: boolean; now: Date }>({
    ...RESERVE_AND_BEGIN,
    values,
  });
  const byToken = new Map(rows.map((row) => [row.token, row]));
  const results = items.map((item): NewChargeResult | null => {
    const row = byToken.get(item.lease.token);
    if (!row) return null;
    const begun: BeginChargeResult = row.begun ? begunNow(item, row.now) : { type: 'exists' };
    return { reserved: { type: 'reserved', lease: item.lease, taken_over: false }, begun };
  });
  const unbegun = items.filter((_item, index) => results[index]?.begun?.type === 'exists').map(({ lease }) => lease);
  if (unbegun.length > 0) await watch(connection, unbegun);
  const taken = items.filter((_item, index) => results[index] === null).map(({ lease }) => lease);
  if (taken.length === 0) return results as NewChargeResult[];
  const standing = await reserve(connection, taken, lease_ms, true);
  const standingOf = new Map(taken.map((lease, index) => [lease.token, standing[index] as ReserveResult]));
  return items.map(
    ({ lease }, index) => results[index] ?? { reserved: standingOf.get(lease.token) as ReserveResult, begun: null },
  );
}

async function watch(connection: pg.Pool | pg.PoolClient, leases: readonly Lease[]): Promise<void> {
  await connection.query({
    ...WATCH,
    values: [
      textArray(leases.map((lease) => lease.client_id)),
      textArray(leases.map((lease) => lease.key)),
      uuidArray(leases.map((lease) => lease.token)),
    ],
  });
}
