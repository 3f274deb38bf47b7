import { PAYMENT_EVENTS_TOPIC } from '../payments/outbox-rows.js';

/** The topics of the service. Who owns one decides its partitions, replicas and retention; see docs/events.md. */
export const PAYMENTS_EVENTS = PAYMENT_EVENTS_TOPIC;
export const WALLET_EVENTS = 'wallet.events';
export const PAYMENTS_COMMANDS = 'payments.commands';
export const ORDERS_EVENTS = 'orders.events';
export const WALLET_COMMANDS = 'wallet.commands';

export const PUBLISHED_TOPICS = [PAYMENTS_EVENTS, WALLET_EVENTS] as const;
export const CONSUMED_TOPICS = [PAYMENTS_COMMANDS, ORDERS_EVENTS, WALLET_COMMANDS] as const;

/** Where messages of a topic go that can't be read or keep failing. */
export function deadLetterTopic(topic: string): string {
  return `${topic}.dlq`;
}
