import { randomInt } from 'node:crypto';
import { uuidv7 } from 'uuidv7';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createClient } from '../../src/clients/changes.js';
import { inTransaction } from '../../src/database/transaction.js';
import { wallet } from '../../src/kafka/consumers/wallet.js';
import { deadLetterTopic } from '../../src/kafka/topics.js';
import { openAccount, postTransfer } from '../../src/wallet/ledger.js';
import { Child } from './child-process.js';
import { brokers, message, newBase, newTopic, Reader, send, SOON, type TestBase } from './support.js';

let base: TestBase;
beforeEach(async () => {
  base = await newBase();
  await createClient(base.database.pool, { id: 'shop', name: 'shop', scopes: ['commands'] }, { actor: 'test' });
});
afterEach(() => base.end());

const query = async <Row extends object>(text: string, values: unknown[] = []): Promise<Row[]> =>
  (await base.database.pool.query<Row>(text, values)).rows;

/** An account with so much on it, from outside. */
async function account(balance_minor: bigint): Promise<string> {
  const { pool } = base.database;
  const open = (kind: 'internal' | 'external') =>
    openAccount(pool, { id: uuidv7(), client_id: 'shop', kind, name: '', currency: 'EUR' });
  const [internal, external] = await Promise.all([open('internal'), open('external')]);
  if (balance_minor > 0n) {
    const request = {
      transfer_id: uuidv7(),
      client_id: 'shop',
      debit_account_id: external.id,
      credit_account_id: internal.id,
      amount_minor: balance_minor,
      currency: 'EUR',
      saga_id: null,
      step_name: null,
    };
    const result = await inTransaction(pool, (tx) => postTransfer(tx, request));
    expect(result.type).toBe('posted');
  }
  return internal.id;
}

const balanceOf = async (id: string): Promise<bigint> =>
  (await query<{ balance_minor: bigint }>('select balance_minor from account where id = $1', [id]))[0]!.balance_minor;

/** The books: every balance is the sum of its entries, and all entries sum to zero. */
async function expectBooksInOrder(): Promise<void> {
  expect(
    await query(`select a.id from account a left join ledger_entry e on e.account_id = a.id
                 group by a.id having a.balance_minor <> coalesce(sum(e.amount_minor), 0) or a.version <> count(e.sequence)`),
  ).toEqual([]);
  expect(
    await query('select transfer_id from ledger_entry group by transfer_id having sum(amount_minor) <> 0'),
  ).toEqual([]);
  expect(await query(`select id from account where balance_minor < 0 and kind = 'internal'`)).toEqual([]);
}

interface Debit {
  readonly account_id: string;
  readonly credit_account_id: string;
  readonly amount: string;
  readonly transfer_id?: string;
  readonly client_id?: string;
}

const debit = ({ transfer_id = uuidv7(), client_id = 'shop', ...rest }: Debit) =>
  message('DebitAccount.v1', { transfer_id, client_id, currency: 'EUR', ...rest });

describe('the wallet', () => {
  it('debits once for 1,000 deliveries of 100 events in random order over two consumers, with kill -9 in between', async () => {
    const topic = await newTopic('wallet.commands', 4);
    const accounts = await Promise.all(Array.from({ length: 10 }, () => account(100_000n)));
    const pick = (): string => accounts[randomInt(accounts.length)]!;
    const expected = new Map(accounts.map((id) => [id, 100_000n]));
    const events = Array.from({ length: 100 }, () => {
      const account_id = pick();
      let credit_account_id = pick();
      while (credit_account_id === account_id) credit_account_id = pick();
      const amount_minor = BigInt(randomInt(1, 500));
      expected.set(account_id, expected.get(account_id)! - amount_minor);
      expected.set(credit_account_id, expected.get(credit_account_id)! + amount_minor);
      const amount = `${amount_minor / 100n}.${String(amount_minor % 100n).padStart(2, '0')}`;
      const transfer_id = uuidv7();
      // The same transfer comes under several message ids too: the mark can't know that, the transfer's id does.
      return Array.from({ length: 2 }, () => debit({ transfer_id, account_id, credit_account_id, amount }));
    });
    const deliveries = shuffled(events.flatMap(([one, two]) => Array.from({ length: 5 }, () => [one!, two!]).flat()));
    expect(deliveries).toHaveLength(1000);
    // Deliveries of one event land in any partition, and come in parts: there is something left for whoever starts later.
    const sendPart = (from: number, to: number): Promise<void> =>
      send(
        topic,
        deliveries.slice(from, to).map((delivery) => ({ ...delivery, partition: randomInt(4) })),
      );

    const options = {
      database: base.address,
      brokers: brokers(),
      consumer: 'wallet',
      topic,
      group_prefix: `${topic}-`,
      session_ms: 1_500,
      hang_after_commit: false,
    };
    const start = (): Child => {
      const child = Child.start('consumer', options);
      base.add(() => child.kill());
      return child;
    };
    await sendPart(0, 300);
    let working = start();
    await working.until((lines) => lines.length > 5);
    for (const [from, to] of [
      [300, 600],
      [600, 1000],
    ] as const) {
      const next = start();
      await working.kill();
      await sendPart(from, to);
      await next.until((lines) => lines.length > 5);
      working = next;
    }
    start();
    await vi.waitFor(
      async () => {
        expect(await query('select 1 from processed_event')).toHaveLength(200);
      },
      { timeout: 60_000, interval: 100 },
    );
    expect(
      await query(
        `select 1 from transfer t where exists (select from ledger_entry e where e.transfer_id = t.transfer_id)`,
      ),
    ).toHaveLength(110);
    for (const [id, balance_minor] of expected) expect(await balanceOf(id)).toBe(balance_minor);
    await expectBooksInOrder();
  }, 120_000);

  it('never takes an account below zero, and refuses for good what it has refused', async () => {
    const topic = await newTopic('wallet.commands', 4);
    const [from, to] = [await account(1_000n), await account(0n)];
    const transfer_id = uuidv7();
    const debits = Array.from({ length: 30 }, () => debit({ account_id: from, credit_account_id: to, amount: '1.00' }));
    await send(
      topic,
      debits.map((sent, index) => ({ ...sent, partition: index % 4 })),
    );
    base.consumer({ ...wallet, topic }, { limits: { partitions_at_once: 4 } }).start();
    await vi.waitFor(async () => expect(await query('select 1 from processed_event')).toHaveLength(30), SOON);
    expect(await balanceOf(from)).toBe(0n);
    expect(await balanceOf(to)).toBe(1_000n);
    expect(await query(`select 1 from transfer where refusal = 'insufficient_funds'`)).toHaveLength(20);

    const late = { transfer_id, account_id: from, credit_account_id: to, amount: '1.00' };
    await send(topic, [debit(late)]);
    await vi.waitFor(async () => expect(await query('select 1 from processed_event')).toHaveLength(31), SOON);
    await send(topic, [debit({ account_id: to, credit_account_id: from, amount: '5.00' })]);
    await vi.waitFor(async () => expect(await balanceOf(from)).toBe(500n), SOON);
    await send(topic, [debit(late)]);
    await vi.waitFor(async () => expect(await query('select 1 from processed_event')).toHaveLength(33), SOON);
    expect(await balanceOf(from)).toBe(500n);
    await expectBooksInOrder();
  });

  it('tells what it did, and refuses with a reason', async () => {
    const topic = await newTopic('wallet.commands');
    const [from, to] = [await account(1_000n), await account(0n)];
    const foreign = debit({ account_id: from, credit_account_id: to, amount: '1.00', client_id: 'nobody' });
    const sent = [
      debit({ account_id: from, credit_account_id: to, amount: '2.50' }),
      debit({ account_id: from, credit_account_id: from, amount: '1.00' }),
      debit({ account_id: from, credit_account_id: uuidv7(), amount: '1.00' }),
      message('DebitAccount.v1', {
        transfer_id: uuidv7(),
        client_id: 'shop',
        account_id: from,
        credit_account_id: to,
        amount: '1',
        currency: 'JPY',
      }),
      foreign,
    ];
    await send(topic, sent);
    base.consumer({ ...wallet, topic }).start();
    await vi.waitFor(async () => expect(await query('select 1 from outbox_event')).toHaveLength(5), SOON);
    const told = await query<{ type: string; sequence: number; data: Record<string, unknown> }>(
      `select type, sequence, data from outbox_event where topic = 'wallet.events' order by created_at, id`,
    );
    expect(told[0]).toMatchObject({
      type: 'AccountDebited.v1',
      sequence: 2,
      data: { account_id: from, credit_account_id: to, amount: '2.50', balance: '7.50', currency: 'EUR' },
    });
    expect(told.slice(1).map(({ type, data }) => [type, data.reason])).toEqual([
      ['AccountDebitRefused.v1', 'same_account'],
      ['AccountDebitRefused.v1', 'account_not_found'],
      ['AccountDebitRefused.v1', 'currency_mismatch'],
      ['AccountDebitRefused.v1', 'forbidden'],
    ]);
  });

  it('takes a transfer_id that stands for another transfer for poison', async () => {
    const topic = await newTopic('wallet.commands');
    const [from, to] = [await account(1_000n), await account(0n)];
    const transfer = { transfer_id: uuidv7(), account_id: from, credit_account_id: to };
    await send(topic, [debit({ ...transfer, amount: '1.00' }), debit({ ...transfer, amount: '2.00' })]);
    const dead = await Reader.start(deadLetterTopic(topic));
    base.add(() => dead.stop());
    base.consumer({ ...wallet, topic }).start();
    await dead.until((letters) => letters.length === 1);
    expect(dead.received[0]!.headers.dlq_reason).toBe('contradiction');
    expect(await balanceOf(from)).toBe(900n);
  });
});

function shuffled<T>(items: readonly T[]): T[] {
  const result = [...items];
  for (let last = result.length - 1; last > 0; last -= 1) {
    const other = randomInt(last + 1);
    [result[last], result[other]] = [result[other]!, result[last]!];
  }
  return result;
}
