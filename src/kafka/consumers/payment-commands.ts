import type pg from 'pg';
import { newId } from '../../domain/id.js';
import { mayCommand } from '../../clients/may-command.js';
import { type Answer, SUCCESS_STATUS } from '../../contract/answer.js';
import { parseChargeCommand, parseRefundCommand } from '../../contract/requests.js';
import type { ChargeCommand, RefundCommand } from '../../domain/command.js';
import { OncepayError } from '../../domain/errors.js';
import { type Begun, beginItem } from '../../payments/begin.js';
import { deadlineIn } from '../../payments/clock.js';
import type { PaymentsContext } from '../../payments/context.js';
import { beginFollowUp } from '../../payments/follow-up.js';
import { type Held, type Pursuable, resume } from '../../payments/run.js';
import { beginOnExisting } from '../../payments/second-guard.js';
import { beginCharges, type Origin } from '../../store/begin-charge.js';
import { readPayment } from '../../store/payments.js';
import { endLease } from '../../store/records.js';
import { reserve } from '../../store/reserve.js';
import type { CloudEvent } from '../cloud-events.js';
import type { AfterCommit, Attempt, EventConsumer, EventHandler } from '../event-consumer.js';
import { readData, SagaStep } from '../messages.js';
import type { RunPool } from '../run-pool.js';
import { PAYMENTS_COMMANDS } from '../topics.js';
import { publishExisting, publishRejection } from './command-answers.js';

type SagaCommand = ChargeCommand | RefundCommand;

/** A command that is valid, with everything that its transaction needs. */
interface Step {
  readonly event: CloudEvent;
  readonly saga: SagaStep;
  readonly command: SagaCommand;
  readonly attempt: Attempt;
}

/** Refused for the moment: rolled back, and tried again after a pause. */
class TryLater extends Error {
  override readonly name = 'TryLater';
}

/** An idempotency key of HTTP is ASCII: with this before it, a step's key can never be one. */
const KEY_NAMESPACE = '§';

/** Charges and refunds that sagas ask for, by the same use cases as over HTTP (docs/events.md). */
export function paymentCommands(payments: PaymentsContext, pool: RunPool): EventConsumer {
  const handler =
    (readCommand: CommandReader): EventHandler =>
    (tx, event, attempt) =>
      handleCommand({ payments, pool }, tx, event, attempt, readCommand);
  return {
    name: 'payment-commands',
    topic: PAYMENTS_COMMANDS,
    other_types: 'dead_letter',
    handlers: { 'ChargePayment.v1': handler(readCharge), 'RefundPayment.v1': handler(readRefund) },
  };
}

type CommandReader = (payments: PaymentsContext, tx: pg.PoolClient, saga: SagaStep) => Promise<SagaCommand>;

async function readCharge(payments: PaymentsContext, _tx: pg.PoolClient, saga: SagaStep): Promise<ChargeCommand> {
  const { saga_id: _saga, step_name: _step, client_id: _client, ...body } = saga;
  return parseChargeCommand(body, { providers: payments.providers.names });
}

async function readRefund(_payments: PaymentsContext, tx: pg.PoolClient, saga: SagaStep): Promise<RefundCommand> {
  const { saga_id: _saga, step_name: _step, client_id, payment_id, ...body } = saga;
  const id = typeof payment_id === 'string' && UUID.test(payment_id) ? payment_id.toLowerCase() : null;
  const payment = id === null ? undefined : await readPayment(tx, id);
  if (payment?.client_id !== client_id) throw new OncepayError('not_found', 'There is no payment of this id.');
  return parseRefundCommand(body, payment);
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

interface Context {
  readonly payments: PaymentsContext;
  readonly pool: RunPool;
}

/**
 * One step, in the transaction of its mark: either everything that makes it durable (reservation, payment, operation) is
 * committed with the mark, or its rejection is. The provider is called after that.
 */
async function handleCommand(
  context: Context,
  tx: pg.PoolClient,
  event: CloudEvent,
  attempt: Attempt,
  readCommand: CommandReader,
): Promise<AfterCommit | undefined> {
  // Without these nobody could be answered: a dead letter.
  const saga = readData(SagaStep, event.data);
  try {
    if (!(await mayCommand(tx, saga.client_id))) {
      throw new OncepayError('forbidden', 'This client does not exist, is disabled, or lacks the scope commands.');
    }
    const command = await readCommand(context.payments, tx, saga);
    return await begin(context, tx, { event, saga, command, attempt });
  } catch (error) {
    if (!(error instanceof OncepayError)) throw error;
    await publishRejection(tx, event, saga, error);
    return undefined;
  }
}

async function begin(context: Context, tx: pg.PoolClient, step: Step): Promise<AfterCommit | undefined> {
  const { payments } = context;
  const { saga, command, event } = step;
  const deadline = deadlineIn(payments.timing.lease_ms);
  const item = {
    client_id: saga.client_id,
    key: `${KEY_NAMESPACE}${saga.saga_id}:${saga.step_name}`,
    kind: command.kind,
    command_hash: command.hash,
    token: newId(),
    payment_id: command.kind === 'charge' ? newId() : command.payment_id,
    operation_id: newId(),
    success_status: SUCCESS_STATUS[command.kind],
  };
  const [result] = await reserve(tx, [item], payments.timing.lease_ms);
  if (result?.type === 'reused') {
    throw new OncepayError('idempotency_key_reused', 'This step of this saga stands for another command.');
  }
  // Delivered before, under another id: its outcome was published, or will be by whoever runs it.
  if (result?.type !== 'reserved') return undefined;
  const held: Held = { lease: result.lease, taken_over: result.taken_over, deadline, request_id: event.id };
  const begun = await beginUnder(payments, tx, held, step);
  return follow(context, tx, held, step, begun);
}

async function beginUnder(
  payments: PaymentsContext,
  tx: pg.PoolClient,
  held: Held,
  { saga, command, event }: Step,
): Promise<Begun> {
  const origin: Origin = { saga_id: saga.saga_id, step_name: saga.step_name, traceparent: event.traceparent };
  if (command.kind === 'refund') return beginFollowUp(payments, tx, held, command, origin);
  const item = beginItem(payments, held, command, origin);
  const [begun] = await beginCharges(tx, [item]);
  if (begun?.type === 'begun') {
    const { payment_id, operation_id } = held.lease;
    return { type: 'pursue', payment_id, operation_id, first: true };
  }
  if (begun?.type !== 'exists') return { type: 'lease_lost' };
  return beginOnExisting(payments, tx, item, held.request_id);
}

/** What follows from how it began: the provider call after the commit, or an answer to the saga with it. */
async function follow(
  context: Context,
  tx: pg.PoolClient,
  held: Held,
  step: Step,
  begun: Begun,
): Promise<AfterCommit | undefined> {
  switch (begun.type) {
    case 'pursue':
      return () => runLater(context, held, step.command, begun);
    case 'answer':
      await answer(tx, step, begun.answer);
      return undefined;
    case 'refused':
      if (step.attempt.is_last) throw begun.error;
      throw new TryLater(begun.error.message);
    case 'vanished':
      if (step.command.kind === 'refund') throw new OncepayError('not_found', 'There is no payment of this id.');
      throw new TryLater('What was in the way is gone.');
    case 'lease_lost':
      // Only a lease that was taken over can be lost, to somebody who then runs it.
      throw new TryLater('The lease of this step was taken by another.');
  }
}

async function answer(tx: pg.PoolClient, { event, saga, command }: Step, given: Answer): Promise<void> {
  if (given.status >= 400) {
    await publishRejection(tx, event, saga, given);
    return;
  }
  // A refund's answer of success is that of this very step, whose event has been published.
  if (command.kind === 'charge') await publishExisting(tx, event, saga, given);
}

function runLater({ payments, pool }: Context, held: Held, { kind }: SagaCommand, target: Pursuable): void {
  const endEarly = (): Promise<void> => endLease(payments.pool, held.lease);
  const taken = pool.submit(async () => {
    try {
      await resume(payments, held, kind, target);
    } catch (error) {
      // Recovery need not wait for the lease.
      await endEarly().catch(() => undefined);
      throw error;
    }
  });
  if (taken) return;
  payments.logger.warn(
    { operation_id: target.operation_id },
    'too many commands wait for a provider; recovery takes it up',
  );
  void endEarly().catch(() => undefined);
}
