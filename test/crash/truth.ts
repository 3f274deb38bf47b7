import type pg from 'pg';
import { expect } from 'vitest';
import type { Kind, MoneyRequest } from './scenario.js';

/** How the rows stand that a request is about. */
export interface Rows {
  readonly payment:
    | {
        readonly id: string;
        readonly status: string;
        readonly amount_captured_minor: bigint;
        readonly amount_refunded_minor: bigint;
      }
    | undefined;
  readonly operations: readonly { readonly kind: string; readonly status: string }[];
  readonly record:
    { readonly state: string; readonly body: string | null; readonly http_status: number | null } | undefined;
  readonly anomalies: number;
}

export async function rowsOf(pool: pg.Pool, { key, external_payment_id }: MoneyRequest): Promise<Rows> {
  const payments = await pool.query<NonNullable<Rows['payment']>>(
    'select id, status, amount_captured_minor, amount_refunded_minor from payment where external_payment_id = $1',
    [external_payment_id],
  );
  const [payment] = payments.rows;
  const operations = await pool.query<Rows['operations'][number]>(
    'select kind, status from operation where payment_id = $1 order by created_at, id',
    [payment?.id ?? null],
  );
  const records = await pool.query<NonNullable<Rows['record']>>(
    'select state, body, http_status from idempotency_record where key = $1',
    [key],
  );
  const anomalies = await pool.query<{ n: number }>('select count(*)::int as n from anomaly where payment_id = $1', [
    payment?.id ?? null,
  ]);
  return { payment, operations: operations.rows, record: records.rows[0], anomalies: anomalies.rows[0]?.n ?? 0 };
}

const END: Readonly<Record<Kind, string>> = {
  charge: 'succeeded',
  'pay again': 'succeeded',
  capture: 'succeeded',
  cancel: 'canceled',
  refund: 'succeeded',
};

/** The state that the database must tell once the operation has happened. */
export function expectHappened(request: MoneyRequest, rows: Rows): void {
  const { kind } = request;
  expect(rows.payment?.status, 'status of the payment').toBe(END[kind]);
  const own = rows.operations.filter((operation) => operation.kind === (kind === 'pay again' ? 'charge' : kind));
  expect(
    own.filter(({ status }) => status === 'succeeded'),
    'operations that succeeded',
  ).toHaveLength(1);
  expect(
    rows.operations.filter(({ status }) => status === 'processing'),
    'operations in flight',
  ).toHaveLength(0);
  expect(rows.record?.state, 'the key').toBe('done');
  expect(rows.payment?.amount_captured_minor).toBe(kind === 'cancel' ? 0n : 1000n);
  expect(rows.payment?.amount_refunded_minor).toBe(kind === 'refund' ? 1000n : 0n);
  expect(rows.anomalies, 'anomalies').toBe(0);
}
