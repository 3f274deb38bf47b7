import type pg from 'pg';
import { byteaArray, int2Array, textArray, uuidArray } from '../database/arrays.js';
import type { OperationKind } from '../domain/payment.js';

/** What a request asks to reserve: its key, its command, and the ids that everything it makes will have. */
export interface ReserveItem {
  readonly client_id: string;
  readonly key: string;
  readonly kind: OperationKind;
  readonly command_hash: Buffer;
  readonly token: string;
  readonly payment_id: string;
  readonly operation_id: string;
  /** The HTTP status that its success will have. */
  readonly success_status: number;
}

/** A lease held on an idempotency record; what is done under it names the token. */
export interface Lease {
  readonly client_id: string;
  readonly key: string;
  /** Whoever loses the lease may find the key with another command: an answer to that one is none to this. */
  readonly command_hash: Buffer;
  readonly token: string;
  readonly payment_id: string;
  readonly operation_id: string;
}

export interface StoredAnswer {
  readonly http_status: number;
  readonly body: string;
  readonly expires_at: Date;
}

export type ReserveResult =
  | { readonly type: 'reserved'; readonly lease: Lease; readonly taken_over: boolean }
  | { readonly type: 'in_progress'; readonly lease_left_ms: number; readonly operation_id: string }
  | { readonly type: 'open'; readonly payment_id: string; readonly operation_id: string; readonly kind: OperationKind }
  | ({
      readonly type: 'done';
      readonly payment_id: string;
      readonly operation_id: string;
      readonly kind: OperationKind;
    } & StoredAnswer)
  | { readonly type: 'reused'; readonly expires_at: Date | null };

// Two statements, never one: an insert plus `union all select` gave no row at all when another session committed in
// between, since the select keeps the snapshot from before the wait (743 of 6,400 racing calls).
const INSERT = {
  name: 'reserve_insert',
  text: `
insert into idempotency_record (client_id, key, kind, command_hash, state, lease_token, lease_until, recover_at, payment_id, operation_id, success_status)
select i.client_id, i.key, i.kind, i.command_hash, 'in_progress', i.token, lease.until, lease.until,
       i.payment_id, i.operation_id, i.success_status
from (select clock_timestamp() + $9::int * interval '1 millisecond') as lease(until), unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::uuid[], $6::uuid[], $7::uuid[], $8::smallint[])
     as i(client_id, key, kind, command_hash, token, payment_id, operation_id, success_status)
order by i.client_id collate "C", i.key collate "C"
on conflict (client_id, key) do nothing
returning lease_token`,
};

// Without a lock: a replay, by far the most frequent case here, must not write.
const LOOK = {
  name: 'reserve_look',
  text: `
select i.token, r.state, r.kind, r.payment_id, r.operation_id, r.http_status, r.body, r.expires_at,
       r.lease_token = i.token as mine,
       r.command_hash = i.command_hash and r.kind = i.kind as same,
       r.state = 'done' and r.expires_at <= clock_timestamp() as expired,
       r.state = 'in_progress' and r.lease_until <= clock_timestamp() as lease_over,
       ceil(extract(epoch from r.lease_until - clock_timestamp()) * 1000)::int as lease_left_ms
from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::uuid[]) as i(client_id, key, kind, command_hash, token)
join idempotency_record r on r.client_id = i.client_id and r.key = i.key`,
};

// Locks first, in the one order that everybody keeps, then looks again at what it locked: of two that found the same
// lease over, the second finds it taken.
const TAKE = {
  name: 'reserve_take',
  text: `
with i as (
  select * from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::uuid[], $6::uuid[], $7::uuid[], $8::smallint[])
    as i(client_id, key, kind, command_hash, token, payment_id, operation_id, success_status)
), lease as materialized (
  select clock_timestamp() + $9::int * interval '1 millisecond' as until
), l as (
  select r.client_id, r.key, r.state, r.kind, r.command_hash, r.lease_until, r.expires_at
  from idempotency_record r join i on r.client_id = i.client_id and r.key = i.key
  order by r.client_id, r.key for no key update of r
), taken as (
  update idempotency_record r
  set lease_token = i.token, lease_until = lease.until, recover_at = lease.until, attempts_started = r.attempts_started + 1
  from lease, l join i on l.client_id = i.client_id and l.key = i.key
  where r.client_id = l.client_id and r.key = l.key
    and l.state = 'in_progress' and l.lease_until <= clock_timestamp() and l.command_hash = i.command_hash and l.kind = i.kind
  returning r.lease_token, r.payment_id, r.operation_id, true as resumed
), renewed as (
  update idempotency_record r
  set state = 'in_progress', kind = i.kind, command_hash = i.command_hash, lease_token = i.token,
      lease_until = lease.until, recover_at = lease.until, payment_id = i.payment_id, operation_id = i.operation_id,
      success_status = i.success_status, http_status = null, body = null, answered_at = null, expires_at = null,
      attempts_started = 1, attempts_finished = 0, created_at = clock_timestamp()
  from lease, l join i on l.client_id = i.client_id and l.key = i.key
  where r.client_id = l.client_id and r.key = l.key and l.state = 'done' and l.expires_at <= clock_timestamp()
  returning r.lease_token, r.payment_id, r.operation_id, false as resumed
)
select * from taken union all select * from renewed`,
};

interface LookRow {
  token: string;
  state: 'in_progress' | 'open' | 'done';
  kind: OperationKind;
  payment_id: string;
  operation_id: string;
  http_status: number;
  body: string;
  expires_at: Date | null;
  mine: boolean | null;
  same: boolean;
  expired: boolean;
  lease_over: boolean;
  lease_left_ms: number;
}

const MAX_ROUNDS = 5;

/**
 * Reserves keys, at most one item per key in a call. Runs on any connection or transaction. Run again with the same
 * tokens after a lost acknowledgement it finds its own reservations.
 * @param look_first for keys that an insert has just found taken
 */
export async function reserve(
  connection: pg.Pool | pg.PoolClient,
  items: readonly ReserveItem[],
  lease_ms: number,
  look_first = false,
): Promise<ReserveResult[]> {
  const results = new Map<string, ReserveResult>();
  let open = items;
  for (let round = 0; open.length > 0; round += 1) {
    if (round === MAX_ROUNDS) throw new Error('reserve: records kept vanishing while they were looked at');
    if (round > 0 || !look_first) await insertNew(connection, open, lease_ms, results);
    open = open.filter((item) => !results.has(item.token));
    if (open.length === 0) break;
    await lookAt(connection, open, lease_ms, results);
    // Deleted between the two statements (released, or swept): insert again.
    open = open.filter((item) => !results.has(item.token));
  }
  return items.map((item) => results.get(item.token) as ReserveResult);
}

async function insertNew(
  connection: pg.Pool | pg.PoolClient,
  items: readonly ReserveItem[],
  lease_ms: number,
  results: Map<string, ReserveResult>,
): Promise<void> {
  const { rows } = await connection.query<{ lease_token: string }>({
    ...INSERT,
    values: [...reserveColumns(items), lease_ms],
  });
  // By token, not by key: two items of one key in a batch would both find their key there.
  const won = new Set(rows.map((row) => row.lease_token));
  for (const item of items) {
    if (won.has(item.token)) results.set(item.token, { type: 'reserved', lease: item, taken_over: false });
  }
}

async function lookAt(
  connection: pg.Pool | pg.PoolClient,
  items: readonly ReserveItem[],
  lease_ms: number,
  results: Map<string, ReserveResult>,
): Promise<void> {
  const { rows } = await connection.query<LookRow>({ ...LOOK, values: reserveColumns(items).slice(0, 5) });
  const byToken = new Map(rows.map((row) => [row.token, row]));
  const takeable: ReserveItem[] = [];
  for (const item of items) {
    const row = byToken.get(item.token);
    if (!row) continue;
    const verdict = judge(row, item);
    if (verdict === 'takeable') takeable.push(item);
    else results.set(item.token, verdict);
  }
  if (takeable.length > 0) await take(connection, takeable, lease_ms, results);
}

function judge(row: LookRow, item: ReserveItem): ReserveResult | 'takeable' {
  const { payment_id, operation_id, kind } = row;
  if (row.mine) return { type: 'reserved', lease: { ...item, payment_id, operation_id }, taken_over: true };
  if (row.expired) return 'takeable';
  if (!row.same) return { type: 'reused', expires_at: row.expires_at };
  if (row.state === 'open') return { type: 'open', payment_id, operation_id, kind };
  // A done record has its answer and its expiry: the table's own check.
  if (row.state === 'done') {
    const expires_at = row.expires_at as Date;
    return { type: 'done', payment_id, operation_id, kind, http_status: row.http_status, body: row.body, expires_at };
  }
  if (row.lease_over) return 'takeable';
  return { type: 'in_progress', lease_left_ms: Math.max(0, row.lease_left_ms), operation_id };
}

async function take(
  connection: pg.Pool | pg.PoolClient,
  items: readonly ReserveItem[],
  lease_ms: number,
  results: Map<string, ReserveResult>,
): Promise<void> {
  const { rows } = await connection.query<{
    lease_token: string;
    payment_id: string;
    operation_id: string;
    resumed: boolean;
  }>({
    ...TAKE,
    values: [...reserveColumns(items), lease_ms],
  });
  for (const item of items) {
    const row = rows.find((candidate) => candidate.lease_token === item.token);
    // Not ours: somebody was faster. It stays undecided here, and the next round looks again.
    if (!row) continue;
    const { payment_id, operation_id } = row;
    const { client_id, key, command_hash, token } = item;
    const lease = { client_id, key, command_hash, token, payment_id, operation_id };
    results.set(item.token, { type: 'reserved', lease, taken_over: row.resumed });
  }
}

/** The parameters of the first eight arrays. */
export function reserveColumns(items: readonly ReserveItem[]): Buffer[] {
  return [
    textArray(items.map((item) => item.client_id)),
    textArray(items.map((item) => item.key)),
    textArray(items.map((item) => item.kind)),
    byteaArray(items.map((item) => item.command_hash)),
    uuidArray(items.map((item) => item.token)),
    uuidArray(items.map((item) => item.payment_id)),
    uuidArray(items.map((item) => item.operation_id)),
    int2Array(items.map((item) => item.success_status)),
  ];
}
