import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { orderProjection } from '../../src/kafka/consumers/order-projection.js';
import { Child } from './child-process.js';
import {
  brokers,
  message,
  newBase,
  newTopic,
  Reader,
  send,
  SOON,
  SOURCE,
  type TestBase,
  writeEvent,
} from './support.js';

let base: TestBase;

beforeEach(async () => {
  base = await newBase();
});
afterEach(() => base.end());

const query = async <Row extends object>(text: string, values: unknown[] = []): Promise<Row[]> =>
  (await base.database.pool.query<Row>(text, values)).rows;

describe('a relay that is killed between sending and marking', () => {
  it('leaves an event that is sent twice, and has its effect once', async () => {
    const topic = await newTopic('orders.events');
    const order = { order_id: 'o-1', client_id: 'default', customer_id: 'c-1', amount: '10.00', currency: 'EUR' };
    const id = randomUUID();
    await base.database.pool.query(
      `insert into outbox_event (id, topic, key, sequence, type, data) values ($1, $2, 'o-1', 1, 'OrderCreated.v1', $3)`,
      [id, topic, JSON.stringify(order)],
    );
    const options = { database: base.address, brokers: brokers(), source: SOURCE, lease_ms: 1_000 };
    const killed = Child.start('relay', { ...options, hang_after_send: true });
    base.add(() => killed.kill());
    await killed.until((lines) => lines.length === 1);
    await killed.kill();
    expect(await query('select 1 from outbox_event where published_at is not null')).toEqual([]);

    base.relay().start();
    const reader = await Reader.start(topic);
    base.add(() => reader.stop());
    await reader.until((received) => received.length === 2);
    expect(reader.received.map((event) => event.headers.ce_id)).toEqual([id, id]);

    base.consumer({ ...orderProjection, topic }).start();
    await send(topic, [message('OrderCreated.v1', { ...order, order_id: 'o-2' })]);
    await vi.waitFor(async () => expect(await query('select 1 from order_projection')).toHaveLength(2), SOON);
    expect(await query('select order_id from order_projection order by order_id')).toEqual([
      { order_id: 'o-1' },
      { order_id: 'o-2' },
    ]);
    expect(await query('select 1 from processed_event where event_id = $1', [id])).toHaveLength(1);
  });

  it('leaves the order of a payment as it was', async () => {
    const topic = await newTopic('payments.events', 3);
    for (let sequence = 1; sequence <= 50; sequence += 1) {
      await writeEvent(base.database.pool, { topic, key: 'p-1', sequence });
    }
    const options = { database: base.address, brokers: brokers(), source: SOURCE, lease_ms: 500 };
    const killed = Child.start('relay', { ...options, hang_after_send: true });
    base.add(() => killed.kill());
    await killed.until((lines) => lines.length === 1);
    await killed.kill();
    base.relay({ limits: { rows_per_shard: 7 } }).start();
    const reader = await Reader.start(topic);
    base.add(() => reader.stop());
    await reader.until((received) => received.length >= 100);
    const first_seen = [...new Set(reader.received.map((event) => Number(event.headers.ce_sequence)))];
    expect(first_seen).toEqual(Array.from({ length: 50 }, (_, index) => index + 1));
  });
});

describe('a consumer that is killed between its effect and the offset', () => {
  it('has had the effect, once: the message comes again and finds its mark', async () => {
    const topic = await newTopic('wallet.commands');
    const accounts = await openAccounts();
    const transfer = (amount: string) => message('DebitAccount.v1', { ...accounts, transfer_id: randomUUID(), amount });
    const [first, second] = [transfer('1.00'), transfer('2.00')];
    await send(topic, [first, second]);
    const options = {
      database: base.address,
      brokers: brokers(),
      consumer: 'wallet',
      topic,
      group_prefix: `${topic}-`,
      session_ms: 1_500,
    };
    const killed = Child.start('consumer', { ...options, hang_after_commit: true });
    base.add(() => killed.kill());
    await killed.until((lines) => lines.length === 1);
    await killed.kill();
    expect(await balanceOf(accounts.account_id)).toBe(9_900n);

    const next = Child.start('consumer', { ...options, hang_after_commit: false });
    base.add(() => next.kill());
    // It is given the first one again, and does nothing for it.
    await next.until((lines) => lines.length === 2);
    expect(next.lines).toEqual([
      `COMMITTED ${String(first.headers.ce_id)}`,
      `COMMITTED ${String(second.headers.ce_id)}`,
    ]);
    expect(await balanceOf(accounts.account_id)).toBe(9_700n);
  });
});

/** 100.00 EUR on the first, from outside. */
async function openAccounts() {
  const [account_id, credit_account_id, outside] = [randomUUID(), randomUUID(), randomUUID()];
  await query(`insert into api_client (id, name, scopes) values ('shop', 'shop', '{commands}')`);
  await query(
    `insert into account (id, client_id, kind, currency, balance_minor, version)
     values ($1, 'shop', 'internal', 'EUR', 10000, 0), ($2, 'shop', 'internal', 'EUR', 0, 0), ($3, 'shop', 'external', 'EUR', -10000, 0)`,
    [account_id, credit_account_id, outside],
  );
  return { client_id: 'shop', account_id, credit_account_id, currency: 'EUR' };
}

async function balanceOf(id: string): Promise<bigint> {
  const [row] = await query<{ balance_minor: bigint }>('select balance_minor from account where id = $1', [id]);
  return row!.balance_minor;
}
