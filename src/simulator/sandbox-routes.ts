import type { SimulatorRequest } from './api-routes.js';
import { parseBehaviour } from './behaviour.js';
import type { MoneyRequest } from './decision.js';
import { Refusal } from './errors.js';
import { Fields, invalid } from './http.js';
import type { Answer, Provider } from './provider.js';
import type { Entry, PaymentRecord } from './records.js';
import { decideRefund, decideRefundStatus } from './refund-rules.js';
import { decideCancel, decideCapture, decideCompletion, decideExpiry } from './rules.js';
import { newEventId, paymentView, refundView } from './views.js';
import type { WebhookSender } from './webhooks.js';

type Route = (context: {
  provider: Provider;
  sender: WebhookSender | null;
  request: SimulatorRequest;
}) => Answer | Promise<Answer>;

const MOST_RESENDS = 100;

/** What tests and people do at the provider's side: `METHOD path` under `/_sandbox`. docs/simulator.md lists them. */
export const SANDBOX_ROUTES: Readonly<Record<string, Route>> = {
  'GET /_sandbox/calls': ({ provider, request }) => {
    const calls = provider.store.calls.map(({ number: _number, ...call }) => call);
    return ok({ data: filtered(calls, request.query, ['operation', 'reference', 'idempotency_key']) });
  },
  'GET /_sandbox/movements': ({ provider, request }) =>
    ok({ data: filtered(provider.store.movements, request.query, ['kind', 'payment_id', 'reference']) }),
  'GET /_sandbox/events': ({ provider: { store } }) => {
    const shown = (is_delivered: boolean) => (event: { id: string; type: string; body: string }) => ({
      id: event.id,
      type: event.type,
      is_delivered,
      body: JSON.parse(event.body) as unknown,
    });
    const data = [...store.delivered.values()].map(shown(true));
    return ok({ data: [...data, ...[...store.undelivered.values()].map(shown(false))] });
  },
  'POST /_sandbox/next': setNext,
  'POST /_sandbox/forget-keys': ({ provider }) => {
    provider.store.commit({ forgot_keys: true });
    return ok({});
  },
  'POST /_sandbox/complete': ({ provider, request }) => {
    const fields = Fields.parse(request.body, ['payment_id', 'result']);
    const result = fields.oneOf('result', ['succeeded', 'failed']);
    return ok(paymentView(complete(provider, find(provider, fields), result)));
  },
  'POST /_sandbox/dashboard': atDashboard,
  'POST /_sandbox/refund-status': setRefundStatus,
  'POST /_sandbox/expire': ({ provider, request }) => {
    const decided = decideExpiry(find(provider, Fields.parse(request.body, ['payment_id'])), Date.now());
    provider.settle(decided);
    return ok(paymentView(decided.payment));
  },
  'POST /_sandbox/resend': resend,
  'POST /_sandbox/emit': emit,
};

/**
 * Ends an open action, or at once what would have ended by itself.
 * @throws Refusal where nothing is open.
 */
export function complete(provider: Provider, payment: PaymentRecord, result: 'succeeded' | 'failed'): PaymentRecord {
  const ended = provider.endNow(payment, result);
  if (ended) return ended;
  const decided = decideCompletion(payment, result, Date.now());
  provider.settle(decided);
  return decided.payment;
}

function setNext({ provider, request }: Parameters<Route>[0]): Answer {
  const fields = Fields.parse(request.body, ['payment_id', 'operation', 'behaviour']);
  const operation = fields.oneOf('operation', ['capture', 'cancel', 'refund']);
  const behaviour = fields.string('behaviour');
  if (!behaviour.startsWith('pm_') || !parseBehaviour(behaviour, operation)) {
    throw invalid(`${behaviour} is no behaviour of a ${operation}`);
  }
  const next_added: Entry['next_added'] = { payment_id: find(provider, fields).id, operation, behaviour };
  provider.store.commit({ next_added });
  return ok(next_added);
}

/** Somebody uses the provider's own dashboard: no key, no reference, nothing the service knows of before. */
function atDashboard({ provider, request }: Parameters<Route>[0]): Answer {
  const fields = Fields.parse(request.body, ['payment_id', 'operation', 'amount_minor']);
  const operation = fields.oneOf('operation', ['capture', 'cancel', 'refund']);
  const payment = find(provider, fields);
  const asked: MoneyRequest = {
    operation,
    amount_minor: fields.optionalAmount('amount_minor'),
    reference: null,
    charge: null,
  };
  const normal = parseBehaviour(null, operation);
  if (!normal) throw new Error('the default behaviour is missing');
  const decide = { capture: decideCapture, cancel: decideCancel, refund: decideRefund }[operation];
  const decided = decide(payment, asked, normal, Date.now());
  provider.settle(decided);
  return ok(decided.refund ? refundView(decided.refund) : paymentView(decided.payment));
}

/** A refund ends, or is taken back after it had succeeded. */
function setRefundStatus({ provider, request }: Parameters<Route>[0]): Answer {
  const fields = Fields.parse(request.body, ['refund_id', 'status']);
  const id = fields.string('refund_id');
  const refund = provider.store.refunds.get(id) ?? provider.store.refundsByReference(id).at(-1);
  const payment = refund && provider.store.payments.get(refund.payment_id);
  if (!payment) throw new Refusal(404, 'not_found', 'no such refund');
  const status = fields.oneOf('status', ['succeeded', 'failed', 'canceled']);
  const decided = decideRefundStatus(payment, refund, status, Date.now());
  const scheduled = provider.store.scheduledFor(payment.id).filter((change) => change.refund_id === refund.id);
  provider.settle(decided, { unscheduled: scheduled.map((change) => change.id) });
  return ok(refundView(decided.refund ?? refund));
}

/** Sends an event again, as often as asked, all at once. */
async function resend({ provider, sender, request }: Parameters<Route>[0]): Promise<Answer> {
  const fields = Fields.parse(request.body, ['event_id', 'times']);
  const id = fields.string('event_id');
  const event = provider.store.delivered.get(id) ?? provider.store.undelivered.get(id);
  if (!event) throw new Refusal(404, 'not_found', 'no such event, or it is too old');
  const times = fields.optionalInteger('times', 1, MOST_RESENDS) ?? 1;
  const sendings = Array.from({ length: times }, () => needed(sender).sendOnce(event.id, event.body, new Date()));
  return ok({ event_id: id, results: await Promise.all(sendings) });
}

/** Signs and sends any body, once, and tells what the receiver answered. */
async function emit({ sender, request }: Parameters<Route>[0]): Promise<Answer> {
  const fields = Fields.parse(request.body, ['body', 'event_id', 'sent_at_offset_s']);
  const body = fields.any('body');
  if (body === undefined) throw invalid('body is missing: an event, or a text that is sent as it is');
  const event_id = fields.optionalString('event_id') ?? newEventId();
  const offset_s = fields.optionalInteger('sent_at_offset_s', -1_000_000, 1_000_000) ?? 0;
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const result = await needed(sender).sendOnce(event_id, text, new Date(Date.now() + offset_s * 1000));
  return ok({ event_id, result });
}

function needed(sender: WebhookSender | null): WebhookSender {
  if (!sender) throw new Refusal(409, 'no_webhooks', 'the simulator was started without an address for webhooks');
  return sender;
}

function find(provider: Provider, fields: Fields): PaymentRecord {
  const payment = provider.store.findPayment(fields.string('payment_id'));
  if (!payment) throw new Refusal(404, 'not_found', 'no such payment');
  return payment;
}

function filtered<T extends object>(
  rows: readonly T[],
  query: URLSearchParams,
  names: readonly (keyof T & string)[],
): readonly T[] {
  const filters = names.filter((name) => query.has(name));
  if (filters.length === 0) return rows;
  return rows.filter((row) => filters.every((name) => row[name] === query.get(name)));
}

function ok(body: unknown): Answer {
  return { status: 200, body };
}
