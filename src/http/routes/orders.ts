import type { FastifyInstance } from 'fastify';
import type { Pool } from 'pg';
import { Order as OrderSchema } from '../../contract/order-schemas.js';
import { textProblem } from '../../contract/text.js';
import { paymentView } from '../../contract/views.js';
import { OncepayError } from '../../domain/errors.js';
import { formatAmount } from '../../domain/money.js';
import { findOrder, type Order, paidOnOrder, paymentsOfOrder } from '../../store/order-projection.js';
import { documented } from '../openapi-route.js';
import { clientOf } from '../request.js';

const PAYMENTS_SHOWN_MAX = 100;
const ORDER_ID = { min: 1, max: 128 };

/** `GET /orders/{id}`: an order that Kafka told of, with what was paid on it. */
export async function orderRoutes(app: FastifyInstance, { pool }: { pool: Pool }): Promise<void> {
  app.get<{ Params: { id: string } }>(
    '/orders/:id',
    {
      config: documented({
        scope: 'payments:read',
        summary: 'An order and what was paid on it',
        description:
          'Orders come by Kafka (`OrderCreated.v1`); payments belong to one by their `order_id`. An order that was not told of yet is 404.',
        operation_id: 'getOrder',
        tag: 'Orders',
        path_parameters: { id: { description: 'The order’s id in your own words.', example: '1001' } },
        answers: { 200: { description: 'The order.', schema: OrderSchema } },
        problems: ['not_found'],
      }),
    },
    async (request) => {
      const client = clientOf(request);
      const { id } = request.params;
      const reader = { client_id: client.id, any_client: client.scopes.includes('admin') };
      const order = textProblem(id, ORDER_ID) === null ? await findOrder(pool, id, reader) : null;
      if (order === null) throw new OncepayError('not_found', 'There is no order of this id.');
      return orderView(pool, order);
    },
  );
}

async function orderView(pool: Pool, order: Order) {
  const [paid, payments] = await Promise.all([
    paidOnOrder(pool, order),
    paymentsOfOrder(pool, order, PAYMENTS_SHOWN_MAX),
  ]);
  const { currency, amount_minor } = order;
  return {
    id: order.order_id,
    customer_id: order.customer_id,
    amount: formatAmount(amount_minor, currency),
    currency,
    status: statusOf(paid.captured_minor - paid.refunded_minor, amount_minor),
    amount_paid: formatAmount(paid.captured_minor, currency),
    amount_refunded: formatAmount(paid.refunded_minor, currency),
    payments: payments.map(paymentView),
    created_at: order.ordered_at.toISOString(),
  };
}

function statusOf(kept_minor: bigint, amount_minor: bigint): 'unpaid' | 'partially_paid' | 'paid' {
  if (kept_minor <= 0n) return 'unpaid';
  return kept_minor < amount_minor ? 'partially_paid' : 'paid';
}
