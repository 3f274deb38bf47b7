import type pg from 'pg';
import type { PaymentFilters, PaymentListQuery } from '../contract/query.js';
import type { Operation, OperationKind, OperationStatus, Payment, PaymentStatus } from '../domain/payment.js';
import { operationColumns, paymentColumns, toOperation, toPayment } from './rows.js';

/** Of whom a list is: one client, or everybody (`admin`). */
export type Owner = { readonly client_id: string } | 'everybody';

/** A row with its place in the list: the time as text, since a Date would lose microseconds. */
export interface ListedPayment {
  readonly payment: Payment;
  readonly position: { readonly created_at: string; readonly id: string };
}

/**
 * A page of payments, newest first, and one more if there is one. The place is compared as (time, id), so that rows of the same
 * instant are neither skipped nor repeated. The index of the list is by client and provider: a list of several asks for the
 * newest of each and merges them. One index for all would cost every charge a write for a list that hardly anybody reads.
 */
export async function listPayments(
  pool: pg.Pool,
  owner: Owner,
  { filters, limit, after }: PaymentListQuery,
): Promise<ListedPayment[]> {
  const values: unknown[] = [limit + 1];
  const bind = (value: unknown): string => `$${values.push(value)}`;
  const conditions: string[] = [];
  const where = (column: string, comparison: string, value: string | null, type = ''): void => {
    if (value !== null) conditions.push(`p.${column} ${comparison} ${bind(value)}${type}`);
  };
  const client = owner === 'everybody' ? 'c.id' : bind(owner.client_id);
  const by_provider = isWalked(filters);
  conditions.push(`p.client_id = ${client}`);
  if (by_provider) conditions.push('p.provider = u.provider');
  if (filters.status !== null) conditions.push(inStatus(filters.status, bind(filters.status)));
  where('customer_id', '=', filters.customer_id);
  where('external_payment_id', '=', filters.external_payment_id);
  where('provider', '=', filters.provider);
  where('created_at', '>=', filters.created_from, '::timestamptz');
  where('created_at', '<', filters.created_to, '::timestamptz');
  if (after !== null) {
    conditions.push(`(p.created_at, p.id) < (${bind(after.created_at)}::timestamptz, ${bind(after.id)}::uuid)`);
  }
  const one = `select ${paymentColumns('p')}, to_char(p.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as position
    from payment p where ${conditions.join(' and ')} order by p.created_at desc, p.id desc limit $1`;
  const sources = [
    ...(owner === 'everybody' ? ['api_client c'] : []),
    ...(by_provider ? [`lateral (${providersOf(client)}) u`] : []),
  ];
  const text =
    sources.length === 0
      ? one
      : `select l.* from ${sources.join(' cross join ')} cross join lateral (${one}) l order by l.created_at desc, l.id desc limit $1`;
  const { rows } = await pool.query<Record<string, unknown> & { id: string; position: string }>({ text, values });
  return rows.map(({ position, ...row }) => ({
    payment: toPayment(row),
    position: { created_at: position, id: row.id },
  }));
}

/** Whether nothing else than the newest leads to the payments of a list. */
function isWalked({ provider, customer_id, external_payment_id, status }: PaymentFilters): boolean {
  const has_index = customer_id !== null || external_payment_id !== null || (status !== null && status !== 'succeeded');
  return provider === null && !has_index;
}

/** The providers that a client has payments of, each by one look into the index of the list, which alone has this order. */
function providersOf(client: string): string {
  const next = (beyond: string): string =>
    `select x.provider from payment x where x.client_id = ${client} ${beyond} order by x.provider, x.created_at limit 1`;
  return `with recursive used as (
      (${next('')}) union all select (${next('and x.provider > used.provider')}) from used where used.provider is not null
    ) select provider from used where provider is not null`;
}

/**
 * Where few payments of many are in a status, they are not looked for along the newest: what is processing has an operation
 * in flight, the others but `succeeded` have an index (docs/adr/0064).
 */
function inStatus(status: PaymentStatus, parameter: string): string {
  if (status === 'succeeded') return `p.status = ${parameter}`;
  if (status !== 'processing') return `p.listed_status = ${parameter}`;
  return `p.status = ${parameter} and p.id = any (array(select o.payment_id from operation o where o.status = 'processing' and o.kind <> 'refund'))`;
}

/** How many refunds one answer lists. */
const REFUNDS_MAX = 1_000;

/** The refunds of a payment, oldest first. */
export async function listRefunds(pool: pg.Pool, payment_id: string): Promise<Operation[]> {
  const { rows } = await pool.query<Record<string, unknown>>({
    name: 'refunds_of_payment',
    text: `select ${operationColumns('o')} from operation o where o.payment_id = $1 and o.kind = 'refund' order by o.created_at, o.id limit $2`,
    values: [payment_id, REFUNDS_MAX],
  });
  return rows.map(toOperation);
}

export async function readRefund(pool: pg.Pool, refund_id: string): Promise<Operation | undefined> {
  const { rows } = await pool.query<Record<string, unknown>>({
    name: 'refund_read',
    text: `select ${operationColumns('o')} from operation o where o.id = $1 and o.kind = 'refund'`,
    values: [refund_id],
  });
  return rows[0] && toOperation(rows[0]);
}

/** Where a key stands. */
export interface KeyRow {
  readonly key: string;
  readonly kind: OperationKind;
  readonly state: 'in_progress' | 'open' | 'done';
  readonly created_at: Date;
  readonly lease_until: Date | null;
  readonly expires_at: Date | null;
  readonly payment_id: string | null;
  readonly payment_status: PaymentStatus | null;
  readonly operation_id: string | null;
  readonly operation_kind: OperationKind | null;
  readonly operation_status: OperationStatus | null;
  readonly needs_review: boolean;
}

/** A client's own key with what it made, as that is now. A record past its retention counts as gone, swept or not. */
export async function readKey(pool: pg.Pool, client_id: string, key: string): Promise<KeyRow | undefined> {
  const { rows } = await pool.query<KeyRow>({
    name: 'key_read',
    text: `select r.key, r.kind, r.state, r.created_at, r.lease_until, r.expires_at, p.id as payment_id, p.status as payment_status,
             o.id as operation_id, o.kind as operation_kind, o.status as operation_status, o.needs_review_at is not null as needs_review
           from idempotency_record r
           left join payment p on p.id = r.payment_id
           left join operation o on o.id = r.operation_id
           where r.client_id = $1 and r.key = $2 and not (r.state = 'done' and r.expires_at <= clock_timestamp())`,
    values: [client_id, key],
  });
  return rows[0];
}
