import { newId } from '../domain/id.js';
import { paymentView, refundView } from '../contract/views.js';
import type { Change, ChangeEvent } from '../domain/change.js';
import type { Operation, Payment } from '../domain/payment.js';
import type { OutboxRow } from '../store/settle.js';

export const PAYMENT_EVENTS_TOPIC = 'payments.events';

/** The events of a change as they will be published: each with its id, made here, in the transaction of the change (R1). */
export function outboxRows(change: Change): OutboxRow[] {
  return change.events.map((event) => {
    const operation = event.operation_id === null ? null : change.operation(event.operation_id);
    return outboxRow(change.payment, operation, event);
  });
}

export function outboxRow(payment: Payment, operation: Operation | null, event: ChangeEvent): OutboxRow {
  return {
    id: newId(),
    topic: PAYMENT_EVENTS_TOPIC,
    key: payment.id,
    sequence: event.sequence,
    type: event.type,
    data: JSON.stringify({
      payment_id: payment.id,
      client_id: payment.client_id,
      operation_id: event.operation_id,
      ...(operation?.saga_id ? { saga_id: operation.saga_id, step_name: operation.step_name } : {}),
      payment: paymentView(payment),
      ...(operation?.kind === 'refund' ? { refund: refundView(payment, operation) } : {}),
      ...(event.anomaly ? { anomaly: { kind: event.anomaly.kind, ...event.anomaly.detail } } : {}),
    }),
    traceparent: operation?.traceparent ?? null,
  };
}
