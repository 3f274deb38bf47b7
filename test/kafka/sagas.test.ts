import { randomUUID } from 'node:crypto';
import { Registry } from 'prom-client';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { ConsumerRunner } from '../../src/kafka/consumer.js';
import { paymentCommands } from '../../src/kafka/consumers/payment-commands.js';
import { createConsumerMetrics } from '../../src/kafka/metrics.js';
import { Publisher } from '../../src/kafka/publisher.js';
import { Relay } from '../../src/kafka/relay.js';
import { RunPool } from '../../src/kafka/run-pool.js';
import { makeTopics } from '../../src/kafka/topic-setup.js';
import { deadLetterTopic, PAYMENTS_EVENTS } from '../../src/kafka/topics.js';
import { newCharge, TestSystem } from '../support/app.js';
import { message, newKafka, newTopic, Reader, type Received, send, silent, SOON, SOURCE } from './support.js';

let system: TestSystem;
let events: Reader;
let relay: Relay;
let events_publisher: Publisher;
const kafka = newKafka();

beforeAll(async () => {
  const admin = kafka.admin();
  await admin.connect();
  await makeTopics(admin);
  await admin.disconnect();
  system = await TestSystem.start();
  events = await Reader.start(PAYMENTS_EVENTS);
  events_publisher = new Publisher(kafka);
  relay = new Relay({
    pool: system.database.pool,
    connection_string: system.database.listen_url,
    source: SOURCE,
    publisher: events_publisher,
    logger: silent,
    metrics: { countOutbox: () => undefined },
  });
  relay.start();
}, 60_000);
afterAll(async () => {
  await relay.stop();
  await events_publisher.close();
  await events.stop();
  await system.close();
});

let topic: string;
const closers: (() => Promise<unknown>)[] = [];
beforeEach(async () => {
  topic = await newTopic('payments.commands', 3);
});
afterEach(async () => {
  for (let close = closers.pop(); close !== undefined; close = closers.pop()) await close();
});

/** The consumer of commands, as startKafka runs it. */
function startConsumer(limits: { max_running?: number; max_waiting?: number } = {}): void {
  const pool = new RunPool({ max_running: 16, max_waiting: 1000, logger: silent, ...limits });
  const publisher = new Publisher(kafka);
  const consumer = new ConsumerRunner(
    { ...paymentCommands(system.first.payments, pool), topic },
    {
      kafka,
      pool: system.database.pool,
      publisher,
      metrics: createConsumerMetrics(new Registry()),
      logger: silent,
      group_prefix: `${topic}-`,
    },
  );
  closers.push(
    () => publisher.close(),
    () => pool.stop(),
    () => consumer.stop(),
  );
  consumer.start();
}

interface SagaStep {
  readonly saga_id: string;
  readonly step_name: string;
}

const chargeStep = (step: SagaStep, body: object, id?: string) =>
  message('ChargePayment.v1', { client_id: 'default', ...step, ...body }, { key: step.saga_id, ...(id && { id }) });
const refundStep = (step: SagaStep, payment_id: string, body: object = {}) =>
  message('RefundPayment.v1', { client_id: 'default', ...step, payment_id, ...body }, { key: step.saga_id });

const newStep = (step_name = 'charge'): SagaStep => ({ saga_id: randomUUID(), step_name });

interface Told {
  readonly type: string;
  readonly data: {
    payment_id: string;
    saga_id?: string;
    step_name?: string;
    payment: { status: string; amount_refunded: string };
    refund?: { status: string };
    problem?: { code: string; errors?: unknown };
  };
}

/** What the events tell a step, in their order. */
function toldTo(step: SagaStep): Told[] {
  const told = (event: Received): Told => ({
    type: event.headers.ce_type!,
    data: JSON.parse(event.value ?? '') as Told['data'],
  });
  return events.received
    .map(told)
    .filter(({ data }) => data.saga_id === step.saga_id && data.step_name === step.step_name);
}

async function answerTo(step: SagaStep): Promise<Told> {
  await vi.waitFor(() => expect(toldTo(step)).not.toEqual([]), SOON);
  return toldTo(step)[0]!;
}

describe('a saga', () => {
  it('charges, and gives back what it charged when a later step fails (the worked example of docs/events.md)', async () => {
    startConsumer();
    const saga_id = randomUUID();
    const charge = { saga_id, step_name: 'charge' };
    const body = newCharge({ order_id: 'o-1' });
    await send(topic, [chargeStep(charge, body)]);
    const charged = await answerTo(charge);
    expect(charged).toMatchObject({ type: 'PaymentSucceeded.v1', data: { payment: { status: 'succeeded' } } });

    // The goods are gone: the compensation.
    const refund = { saga_id, step_name: 'refund' };
    await send(topic, [refundStep(refund, charged.data.payment_id, { reason: 'sold out' })]);
    const refunded = await answerTo(refund);
    expect(refunded).toMatchObject({
      type: 'RefundSucceeded.v1',
      data: {
        payment_id: charged.data.payment_id,
        refund: { status: 'succeeded' },
        payment: { amount_refunded: '10.00' },
      },
    });
    expect((await system.movements(body.external_payment_id)).map(({ kind }) => kind)).toEqual(['charge']);
    const { operations } = await system.rowsOf(body.external_payment_id);
    expect(operations.map(({ kind, status }) => [kind, status])).toEqual([
      ['charge', 'succeeded'],
      ['refund', 'succeeded'],
    ]);
  });

  it('charges once for a step that comes many times, also under new message ids and side by side', async () => {
    const step = newStep();
    const body = newCharge();
    const id = randomUUID();
    const copies = [
      ...Array.from({ length: 6 }, () => chargeStep(step, body, id)),
      ...Array.from({ length: 6 }, () => chargeStep(step, body)),
    ];
    await send(
      topic,
      copies.map((copy, index) => ({ ...copy, partition: index % 3 })),
    );
    startConsumer();
    startConsumer();
    await answerTo(step);
    await vi.waitFor(async () => {
      const ids = copies.map((copy) => String(copy.headers.ce_id));
      expect(await system.query('select 1 from processed_event where event_id = any($1)', [ids])).toHaveLength(7);
    }, SOON);
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
    expect(toldTo(step)).toHaveLength(1);
  });

  it('is told of a decline', async () => {
    startConsumer();
    const step = newStep();
    await send(topic, [chargeStep(step, newCharge({ payment_method: 'pm_decline_insufficient_funds' }))]);
    expect(await answerTo(step)).toMatchObject({ type: 'PaymentFailed.v1', data: { payment: { status: 'failed' } } });
  });

  it('is told why a command was refused, in the words of the problems', async () => {
    await system.client('reader', ['payments:read']);
    startConsumer();
    const refused: [string, SagaStep, ReturnType<typeof message>][] = [];
    const add = (code: string, make: (step: SagaStep) => ReturnType<typeof message>): void => {
      const step = newStep();
      refused.push([code, step, make(step)]);
    };
    add('forbidden', (step) => chargeStep(step, { ...newCharge(), client_id: 'reader' }));
    add('forbidden', (step) => chargeStep(step, { ...newCharge(), client_id: 'nobody' }));
    add('validation_failed', (step) => chargeStep(step, newCharge({ amount: 10 })));
    add('validation_failed', (step) => chargeStep(step, newCharge({ surprise: true })));
    add('card_number_rejected', (step) => chargeStep(step, newCharge({ payment_method: '4242424242424242' })));
    add('not_found', (step) => refundStep(step, randomUUID()));
    const charged = await system.charge(newCharge());
    add('amount_exceeds_remaining', (step) => refundStep(step, charged.body.id, { amount: '10.01' }));
    const declined = await system.charge(newCharge({ payment_method: 'pm_decline_card_declined' }));
    add('invalid_payment_state', (step) => refundStep(step, declined.body.id));
    await send(
      topic,
      refused.map(([, , sent]) => sent),
    );
    for (const [code, step] of refused) {
      expect(await answerTo(step)).toMatchObject({ type: 'CommandRejected.v1', data: { problem: { code } } });
    }
  });

  it('can not have a step stand for two commands', async () => {
    startConsumer();
    const step = newStep();
    const body = newCharge();
    await send(
      topic,
      [chargeStep(step, body), chargeStep(step, { ...body, amount: '11.00' })].map((m) => ({ ...m, partition: 0 })),
    );
    await vi.waitFor(
      () =>
        expect(
          toldTo(step)
            .map(({ type }) => type)
            .sort(),
        ).toEqual(['CommandRejected.v1', 'PaymentSucceeded.v1']),
      SOON,
    );
    const rejected = toldTo(step).find(({ type }) => type === 'CommandRejected.v1');
    expect(rejected!.data.problem).toMatchObject({ code: 'idempotency_key_reused' });
  });

  it('has the key of a step in a namespace that HTTP can not reach', async () => {
    startConsumer();
    const step = newStep();
    const body = newCharge();
    const http = await system.charge(newCharge(), { key: `${step.saga_id}:${step.step_name}` });
    expect(http.status).toBe(201);
    await send(topic, [chargeStep(step, body)]);
    expect(await answerTo(step)).toMatchObject({ type: 'PaymentSucceeded.v1' });
  });

  it('is told of the payment that is there already, with its own ids', async () => {
    startConsumer();
    const body = newCharge();
    const charged = await system.charge(body);
    const step = newStep();
    await send(topic, [chargeStep(step, body)]);
    expect(await answerTo(step)).toMatchObject({ type: 'PaymentSucceeded.v1', data: { payment_id: charged.body.id } });
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('waits for a payment that is still being charged before it gives up a refund', async () => {
    startConsumer();
    const [charge, refund] = [newStep(), newStep('refund')];
    const body = newCharge({ payment_method: 'pm_slow_1500' });
    await send(topic, [{ ...chargeStep(charge, body), partition: 0 }]);
    const payment_id = await vi.waitFor(async () => {
      const { payments } = await system.rowsOf(body.external_payment_id);
      expect(payments).toHaveLength(1);
      return payments[0]!.id;
    }, SOON);
    await send(topic, [{ ...refundStep(refund, payment_id), partition: 1 }]);
    expect(await answerTo(refund)).toMatchObject({ type: 'RefundSucceeded.v1' });
  });

  it('is not held up by a slow provider: the partition goes on', async () => {
    startConsumer();
    const slow = Array.from({ length: 10 }, () => newStep());
    const fast = newStep();
    const charges = slow.map((step) => chargeStep(step, newCharge({ payment_method: 'pm_slow_3000' })));
    await send(
      topic,
      [...charges, chargeStep(fast, newCharge())].map((sent) => ({ ...sent, partition: 0 })),
    );
    await answerTo(fast);
    expect(slow.flatMap(toldTo)).toEqual([]);
    for (const step of slow) await answerTo(step);
  });

  it('is taken up by recovery where the process ends before the provider is called', async () => {
    // A pool that takes nothing: as if it had died right after the commit.
    startConsumer({ max_waiting: 0 });
    const step = newStep();
    const body = newCharge();
    await send(topic, [chargeStep(step, body)]);
    await vi.waitFor(async () => {
      expect((await system.rowsOf(body.external_payment_id)).operations).toMatchObject([{ status: 'processing' }]);
    }, SOON);
    expect(await system.movements(body.external_payment_id)).toEqual([]);
    const jobs = system.first.startJobs();
    expect(await answerTo(step)).toMatchObject({ type: 'PaymentSucceeded.v1' });
    await jobs.stop();
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  });

  it('that can not be answered is a dead letter', async () => {
    const dead = await Reader.start(deadLetterTopic(topic));
    closers.push(() => dead.stop());
    startConsumer();
    await send(topic, [
      message('ChargePayment.v1', { client_id: 'default', step_name: 'charge', ...newCharge() }),
      message('ChargePayment.v1', { client_id: 'default', saga_id: 'a:b', step_name: 'charge', ...newCharge() }),
      message('CapturePayment.v1', {}),
    ]);
    await dead.until((letters) => letters.length === 3);
    expect(dead.received.map(({ headers }) => headers.dlq_reason).sort()).toEqual([
      'invalid_data',
      'invalid_data',
      'unknown_type',
    ]);
  });
});
