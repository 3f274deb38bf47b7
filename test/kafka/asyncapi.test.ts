import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import specs from '@asyncapi/specs';
import { Ajv } from 'ajv';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { Registry } from 'prom-client';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { parse } from 'yaml';
import { decodeEvent } from '../../src/kafka/cloud-events.js';
import { ConsumerRunner } from '../../src/kafka/consumer.js';
import type { EventConsumer } from '../../src/kafka/event-consumer.js';
import { orderProjection } from '../../src/kafka/consumers/order-projection.js';
import { paymentCommands } from '../../src/kafka/consumers/payment-commands.js';
import { wallet } from '../../src/kafka/consumers/wallet.js';
import { createConsumerMetrics } from '../../src/kafka/metrics.js';
import { Publisher } from '../../src/kafka/publisher.js';
import { Relay } from '../../src/kafka/relay.js';
import { RunPool } from '../../src/kafka/run-pool.js';
import { makeTopics } from '../../src/kafka/topic-setup.js';
import {
  CONSUMED_TOPICS,
  deadLetterTopic,
  PAYMENTS_EVENTS,
  PUBLISHED_TOPICS,
  WALLET_EVENTS,
} from '../../src/kafka/topics.js';
import { openAccount } from '../../src/wallet/ledger.js';
import { newCharge, TestSystem } from '../support/app.js';
import { message, newKafka, newTopic, Reader, type Received, send, silent, SOON, SOURCE } from './support.js';

interface Message {
  readonly name: string;
  readonly payload: object;
  readonly headers: object;
  readonly examples?: { readonly payload: Record<string, unknown> }[];
}
interface Document {
  readonly channels: Record<string, { address: string; messages: Record<string, unknown> }>;
  readonly components: { messages: Record<string, Message> };
}

const fileOf = (name: string): string => readFileSync(new URL(`../../openapi/${name}`, import.meta.url), 'utf8');
const asyncapi = parse(fileOf('asyncapi.yaml')) as Document;
const ajv = new Ajv2020({ strict: false, allErrors: true });
formats.default(ajv);
ajv.addSchema(JSON.parse(fileOf('openapi.json')) as object, 'openapi/openapi.json');
// Without the document's own `id`, which is no JSON Schema's.
ajv.addSchema({ components: asyncapi.components }, 'openapi/asyncapi.yaml');

function validator(name: string, part: 'headers' | 'payload'): ValidateFunction {
  return ajv.compile({ $ref: `openapi/asyncapi.yaml#/components/messages/${name.replaceAll('/', '~1')}/${part}` });
}

/** What the document says is wrong with a message that was really sent. */
function complaints(name: string, { headers, value }: Received): unknown[] {
  const [ofHeaders, ofPayload] = [validator(name, 'headers'), validator(name, 'payload')];
  ofHeaders(headers);
  ofPayload(value === null ? null : JSON.parse(value));
  return [...(ofHeaders.errors ?? []), ...(ofPayload.errors ?? [])].map(
    (error) => `${error.instancePath} ${error.message ?? ''}`,
  );
}

const messagesOf = (address: string): string[] => {
  const channel = Object.values(asyncapi.channels).find((candidate) => candidate.address === address);
  return Object.keys(channel?.messages ?? {}).sort();
};

const kafka = newKafka();
const closers: (() => Promise<unknown>)[] = [];
let system: TestSystem;
let topics: Record<'commands' | 'orders' | 'wallet', string>;
const readers = new Map<string, Reader>();

beforeAll(async () => {
  const admin = kafka.admin();
  await admin.connect();
  await makeTopics(admin);
  await admin.disconnect();
  system = await TestSystem.start({ webhooks: true });
  closers.push(() => system.close());
  const [commands, orders, wallets] = await Promise.all(
    ['payments.commands', 'orders.events', 'wallet.commands'].map((name) => newTopic(name)),
  );
  topics = { commands: commands!, orders: orders!, wallet: wallets! };
  for (const topic of [PAYMENTS_EVENTS, WALLET_EVENTS, deadLetterTopic(topics.commands)]) {
    const reader = await Reader.start(topic);
    readers.set(topic, reader);
    closers.push(() => reader.stop());
  }
  const publisher = new Publisher(kafka);
  const pool = new RunPool({ max_running: 4, max_waiting: 100, logger: silent });
  closers.push(
    () => publisher.close(),
    () => pool.stop(),
  );
  const { database } = system.first;
  const metrics = createConsumerMetrics(new Registry());
  const start = (consumer: EventConsumer): void => {
    const runner = new ConsumerRunner(consumer, {
      kafka,
      pool: database.pool,
      publisher,
      metrics,
      logger: silent,
      group_prefix: `${consumer.topic}-`,
    });
    runner.start();
    closers.push(() => runner.stop());
  };
  start({ ...paymentCommands(system.first.payments, pool), topic: topics.commands });
  start({ ...orderProjection, topic: topics.orders });
  start({ ...wallet, topic: topics.wallet });
  const relay = new Relay({
    pool: database.pool,
    connection_string: system.database.listen_url,
    source: SOURCE,
    publisher,
    logger: silent,
    metrics: { countOutbox: () => undefined },
  });
  relay.start();
  closers.push(() => relay.stop());
}, 60_000);
afterAll(async () => {
  for (let close = closers.pop(); close !== undefined; close = closers.pop()) await close();
});

/** Those of this test's own database: the topics of events are shared. */
async function published(topic: string): Promise<Received[]> {
  const ids = new Set((await system.query<{ id: string }>('select id from outbox_event')).map(({ id }) => id));
  return readers.get(topic)!.received.filter(({ headers }) => ids.has(headers.ce_id ?? ''));
}

async function untilPublished(topic: string, types: readonly string[]): Promise<Received[]> {
  return vi.waitFor(async () => {
    const all = await published(topic);
    expect([...new Set(all.map(({ headers }) => headers.ce_type!))].sort()).toEqual([...types].sort());
    return all;
  }, SOON);
}

const exampleOf = (name: string): Record<string, unknown> => asyncapi.components.messages[name]!.examples![0]!.payload;

const post = (path: string, body: object) =>
  request(system.first.url)
    .post(path)
    .set('authorization', `Bearer ${system.api_key}`)
    .set('idempotency-key', randomUUID())
    .send(body);

describe('openapi/asyncapi.yaml', () => {
  it('is an AsyncAPI 3.0 document', () => {
    const draft7 = new Ajv({
      strict: false,
      allErrors: true,
      validateFormats: false,
      meta: false,
      validateSchema: false,
    });
    const validate = draft7.compile(specs.schemasWithoutId['3.0.0']);
    validate(asyncapi);
    expect(validate.errors ?? []).toEqual([]);
  });

  it('has exactly the topics of the service', () => {
    const addresses = Object.values(asyncapi.channels).map(({ address }) => address);
    const ours = [...PUBLISHED_TOPICS, ...CONSUMED_TOPICS, ...CONSUMED_TOPICS.map(deadLetterTopic)];
    expect(addresses.sort()).toEqual([...ours].sort());
  });

  it('describes what is published about payments, every type of it', async () => {
    const send_charge = async (more: object) => (await system.charge(newCharge({ ...more }))).body as { id: string };
    const refused = message('ChargePayment.v1', { ...exampleOf('ChargePayment.v1'), amount: '0' });
    await send(topics.commands, [message('ChargePayment.v1', exampleOf('ChargePayment.v1')), refused]);
    const charged = await send_charge({ metadata: { cart: 'c-1' }, description: 'Two books' });
    expect((await post(`/payments/${charged.id}/refunds`, { amount: '1.00', reason: 'damaged' })).status).toBe(201);
    const again = newCharge({ payment_method: 'pm_decline_expired_card' });
    await system.charge(again);
    await system.charge({ ...again, payment_method: 'pm_success' });
    await send_charge({ payment_method: 'pm_requires_action' });
    const authorized = await send_charge({ capture: 'manual' });
    expect((await post(`/payments/${authorized.id}/cancel`, {})).status).toBe(200);
    await send_charge({ payment_method: 'pm_other_amount_500' });
    const kept = await send_charge({});
    await system.simulator.next(await sandboxId(kept.id), 'refund', 'pm_decline_processing_error');
    await post(`/payments/${kept.id}/refunds`, {});
    const all = await untilPublished(PAYMENTS_EVENTS, messagesOf(PAYMENTS_EVENTS));
    for (const event of all)
      expect([event.headers.ce_type, complaints(event.headers.ce_type!, event)]).toEqual([event.headers.ce_type, []]);
  });

  it('describes what the wallet publishes, and what it takes', async () => {
    const { pool } = system.database;
    const example = exampleOf('DebitAccount.v1');
    for (const [id, kind] of [
      [example.account_id, 'external'],
      [example.credit_account_id, 'internal'],
    ]) {
      await openAccount(pool, {
        id: String(id),
        client_id: 'default',
        kind: kind as 'internal',
        name: '',
        currency: 'EUR',
      });
    }
    const back = {
      ...example,
      transfer_id: randomUUID(),
      account_id: example.credit_account_id,
      credit_account_id: example.account_id,
      amount: '99.00',
    };
    await send(topics.wallet, [message('DebitAccount.v1', example), message('DebitAccount.v1', back)]);
    for (const event of await untilPublished(WALLET_EVENTS, messagesOf(WALLET_EVENTS))) {
      expect(complaints(event.headers.ce_type!, event)).toEqual([]);
    }
  });

  it('has examples of what is consumed, and each of them is', async () => {
    await send(topics.orders, [message('OrderCreated.v1', exampleOf('OrderCreated.v1'))]);
    await vi.waitFor(async () => expect(await system.query('select 1 from order_projection')).toHaveLength(1), SOON);
    const charged = (await system.charge(newCharge())).body as { id: string };
    const refund = { ...exampleOf('RefundPayment.v1'), payment_id: charged.id };
    await send(topics.commands, [message('RefundPayment.v1', refund)]);
    await vi.waitFor(async () => {
      expect(
        await system.query(
          `select 1 from operation where payment_id = $1 and kind = 'refund' and status = 'succeeded'`,
          [charged.id],
        ),
      ).toHaveLength(1);
    }, SOON);
    for (const name of ['ChargePayment.v1', 'RefundPayment.v1', 'OrderCreated.v1', 'DebitAccount.v1']) {
      const sent = message(name, exampleOf(name));
      const received = {
        headers: Object.fromEntries(Object.entries(sent.headers).map(([key, value]) => [key, String(value)])),
        value: sent.value,
      };
      expect(complaints(name, received as Received)).toEqual([]);
    }
  });

  it('describes dead letters', async () => {
    await send(topics.commands, [
      message('ChargePayment.v1', { no: 'saga' }),
      { key: 'k', value: null },
      message('ChargePayment.v9', {}),
    ]);
    const letters = readers.get(deadLetterTopic(topics.commands))!;
    await letters.until((received) => received.length === 3);
    for (const letter of letters.received) expect(complaints('DeadLetter', letter)).toEqual([]);
  });

  it('refuses what the consumers refuse', () => {
    const bad: [string, Record<string, unknown>][] = [
      ['ChargePayment.v1', { ...exampleOf('ChargePayment.v1'), saga_id: 'a:b' }],
      ['ChargePayment.v1', { ...exampleOf('ChargePayment.v1'), amount: 10 }],
      ['ChargePayment.v1', { ...exampleOf('ChargePayment.v1'), surprise: true }],
      ['RefundPayment.v1', { ...exampleOf('RefundPayment.v1'), payment_id: undefined }],
      ['OrderCreated.v1', { ...exampleOf('OrderCreated.v1'), client_id: 'UPPER' }],
      ['DebitAccount.v1', { ...exampleOf('DebitAccount.v1'), transfer_id: 'x' }],
    ];
    for (const [name, payload] of bad) {
      const validate = validator(name, 'payload');
      expect([name, validate(JSON.parse(JSON.stringify(payload)))]).toEqual([name, false]);
    }
    const headers = validator('OrderCreated.v1', 'headers');
    expect(headers({ ce_specversion: '1.0', ce_id: 'x', ce_type: 'OrderCreated.v1', ce_source: 's' })).toBe(false);
    expect(
      decodeEvent({
        value: Buffer.from('{}'),
        headers: { ce_specversion: '1.0', ce_id: 'x', ce_type: 'A.v1', ce_source: 's' },
      }).ok,
    ).toBe(false);
  });
});

async function sandboxId(payment_id: string): Promise<string> {
  const [row] = await system.query<{ provider_payment_id: string }>(
    'select provider_payment_id from payment where id = $1',
    [payment_id],
  );
  return row!.provider_payment_id;
}
