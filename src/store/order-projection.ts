import type pg from 'pg';
import { toPayment, paymentColumns } from './rows.js';
import type { Payment } from '../domain/payment.js';

/** An order, as `OrderCreated.v1` told of it. */
export interface Order {
  readonly client_id: string;
  readonly order_id: string;
  readonly customer_id: string;
  readonly amount_minor: bigint;
  readonly currency: string;
  readonly ordered_at: Date;
}

/**
 * Records an order. An order is created once: a second event of the same order changes nothing.
 * @returns false where it was there already
 */
export async function insertOrder(tx: pg.PoolClient, order: Order, event_id: string): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'order_insert',
    text: `INSERT INTO order_projection (client_id, order_id, customer_id, amount_minor, currency, ordered_at, event_id)
           VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (client_id, order_id) DO NOTHING`,
    values: [
      order.client_id,
      order.order_id,
      order.customer_id,
      order.amount_minor,
      order.currency,
      order.ordered_at,
      event_id,
    ],
  });
  return rowCount === 1;
}

const ORDER = 'client_id, order_id, customer_id, amount_minor, currency, ordered_at';

/**
 * An order of this client. With `any_client` (scope admin) also another's: the client's own comes first, and of several
 * others of that name the first by client.
 */
export async function findOrder(
  connection: pg.Pool | pg.PoolClient,
  order_id: string,
  reader: { readonly client_id: string; readonly any_client: boolean },
): Promise<Order | null> {
  const { rows } = await connection.query<Order>(
    `SELECT ${ORDER} FROM order_projection WHERE order_id = $1 AND (client_id = $2 OR $3)
     ORDER BY client_id <> $2, client_id LIMIT 1`,
    [order_id, reader.client_id, reader.any_client],
  );
  return rows[0] ?? null;
}

/** The payments of an order, oldest first, at most `limit`. */
export async function paymentsOfOrder(
  connection: pg.Pool | pg.PoolClient,
  order: Pick<Order, 'client_id' | 'order_id'>,
  limit: number,
): Promise<Payment[]> {
  const { rows } = await connection.query<Readonly<Record<string, unknown>>>({
    name: 'order_payments',
    text: `SELECT ${paymentColumns('p')} FROM payment p WHERE p.client_id = $1 AND p.order_id = $2 ORDER BY p.created_at, p.id LIMIT $3`,
    values: [order.client_id, order.order_id, limit],
  });
  return rows.map(toPayment);
}

/** What was paid on an order in its currency, over all its payments. */
export async function paidOnOrder(
  connection: pg.Pool | pg.PoolClient,
  order: Pick<Order, 'client_id' | 'order_id' | 'currency'>,
): Promise<{ readonly captured_minor: bigint; readonly refunded_minor: bigint }> {
  const { rows } = await connection.query<{ captured_minor: bigint; refunded_minor: bigint }>({
    name: 'order_paid',
    text: `SELECT coalesce(sum(amount_captured_minor), 0)::bigint AS captured_minor,
                  coalesce(sum(amount_refunded_minor), 0)::bigint AS refunded_minor
           FROM payment WHERE client_id = $1 AND order_id = $2 AND currency = $3`,
    values: [order.client_id, order.order_id, order.currency],
  });
  return rows[0] ?? { captured_minor: 0n, refunded_minor: 0n };
}
