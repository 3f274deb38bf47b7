import { insertOrder } from '../../store/order-projection.js';
import type { EventConsumer, EventHandler } from '../event-consumer.js';
import { OrderCreated, readAmount, readData } from '../messages.js';
import { ORDERS_EVENTS } from '../topics.js';

/** Keeps the orders that others tell of, for `GET /orders/{id}`. */
export const orderProjection: EventConsumer = {
  name: 'order-projection',
  topic: ORDERS_EVENTS,
  // Facts of another service: it has more to tell than we need.
  other_types: 'ignore',
  handlers: { 'OrderCreated.v1': orderCreated },
};

async function orderCreated(...[tx, event]: Parameters<EventHandler>): Promise<undefined> {
  const order = readData(OrderCreated, event.data);
  const { order_id, client_id, customer_id, currency } = order;
  const amount_minor = readAmount(order.amount, currency);
  const ordered_at = event.time ?? new Date();
  await insertOrder(tx, { order_id, client_id, customer_id, amount_minor, currency, ordered_at }, event.id);
  return undefined;
}
