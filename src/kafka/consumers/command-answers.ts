import type pg from 'pg';
import { newId } from '../../domain/id.js';
import type { Answer } from '../../contract/answer.js';
import { problemBody } from '../../contract/problems.js';
import type { PaymentView } from '../../contract/views.js';
import { EVENT_OF_STATUS } from '../../domain/change.js';
import type { OncepayError } from '../../domain/errors.js';
import { outboxRow } from '../../payments/outbox-rows.js';
import { insertEvents, readPayment } from '../../store/payments.js';
import type { CloudEvent } from '../cloud-events.js';
import type { SagaStep } from '../messages.js';
import { PAYMENTS_EVENTS } from '../topics.js';

/** Tells a saga that its step was refused, and why in the words of HTTP's problems; nothing has moved. */
export async function publishRejection(
  tx: pg.PoolClient,
  event: CloudEvent,
  saga: SagaStep,
  refusal: OncepayError | Answer,
): Promise<void> {
  const { status: _status, request_id: _id, ...problem } = problemOf(refusal, event.id);
  const { saga_id, step_name, client_id } = saga;
  await insertEvents(tx, [
    {
      id: newId(),
      topic: PAYMENTS_EVENTS,
      // There is no payment to order it by.
      key: saga_id,
      sequence: 0,
      type: 'CommandRejected.v1',
      data: JSON.stringify({ saga_id, step_name, client_id, command_id: event.id, command_type: event.type, problem }),
      traceparent: event.traceparent,
    },
  ]);
}

function problemOf(refusal: OncepayError | Answer, request_id: string): Record<string, unknown> {
  return 'body' in refusal
    ? (JSON.parse(refusal.body) as Record<string, unknown>)
    : { ...problemBody(refusal, request_id) };
}

/**
 * Tells a saga that the payment which it wants to charge is there already, by the same command of somebody else: the
 * event of what the payment is now, with the saga's ids. What becomes of it later carries the ids of who charged it.
 */
export async function publishExisting(
  tx: pg.PoolClient,
  event: CloudEvent,
  saga: SagaStep,
  given: Answer,
): Promise<void> {
  const { id } = JSON.parse(given.body) as PaymentView;
  const payment = await readPayment(tx, id);
  if (payment === undefined) throw new Error(`payment ${id} is gone`);
  const change = {
    type: EVENT_OF_STATUS[payment.status],
    sequence: payment.version,
    operation_id: null,
    anomaly: null,
  };
  const row = outboxRow(payment, null, change);
  const { saga_id, step_name } = saga;
  const data = { ...(JSON.parse(row.data) as object), saga_id, step_name };
  await insertEvents(tx, [{ ...row, data: JSON.stringify(data), traceparent: event.traceparent }]);
}
