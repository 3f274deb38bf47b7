import request from 'supertest';
import { uuidv7 } from 'uuidv7';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Account, LedgerEntryList, Order } from '../../src/contract/schemas.js';
import { inTransaction } from '../../src/database/transaction.js';
import { insertOrder } from '../../src/store/order-projection.js';
import { openAccount, postTransfer } from '../../src/wallet/ledger.js';
import { newCharge, TestSystem } from '../support/app.js';

let system: TestSystem;
let shop: string;
let other: string;
let reader: string;
let admin: string;
beforeAll(async () => {
  system = await TestSystem.start();
  shop = await system.client('shop', ['payments:read', 'payments:write']);
  other = await system.client('other', ['payments:read', 'payments:write']);
  reader = await system.client('writer', ['payments:write']);
  admin = await system.client('boss', ['admin']);
});
afterAll(() => system.close());

const get = (path: string, api_key = shop) =>
  request(system.first.url).get(path).set('authorization', `Bearer ${api_key}`);

async function account(kind: 'internal' | 'external', client_id = 'shop'): Promise<string> {
  const made = await openAccount(system.database.pool, { id: uuidv7(), client_id, kind, name: 'Ada', currency: 'EUR' });
  return made.id;
}

describe('GET /accounts/{id} and its entries', () => {
  it('show the balance and how it came about, page by page', async () => {
    const [from, to] = [await account('external'), await account('internal')];
    for (const amount_minor of [1000n, 200n, 30n]) {
      const request_ = { transfer_id: uuidv7(), client_id: 'shop', debit_account_id: from, credit_account_id: to };
      const more = { amount_minor, currency: 'EUR', saga_id: null, step_name: null };
      await inTransaction(system.database.pool, (tx) => postTransfer(tx, { ...request_, ...more }));
    }
    const shown = await get(`/accounts/${to}`);
    expect(Account.parse(shown.body)).toMatchObject({ id: to, name: 'Ada', balance: '12.30', entry_count: 3 });
    expect((await get(`/accounts/${from}`)).body.balance).toBe('-12.30');
    const first = await get(`/accounts/${to}/entries?limit=2`);
    expect(LedgerEntryList.parse(first.body).data.map(({ amount, balance }) => [amount, balance])).toEqual([
      ['0.30', '12.30'],
      ['2.00', '12.00'],
    ]);
    const second = await get(`/accounts/${to}/entries?limit=2&cursor=${first.body.next_cursor}`);
    expect(second.body).toMatchObject({ data: [{ amount: '10.00', sequence: 1 }], next_cursor: null });
    expect((await get(`/accounts/${from}/entries`)).body.data[0].amount).toBe('-0.30');
  });

  it('are 404 for another client and for what is no id, and 400 for what they do not know', async () => {
    const id = await account('internal');
    for (const path of [`/accounts/${id}`, `/accounts/${id}/entries`]) {
      expect((await get(path)).status).toBe(200);
      expect((await get(path, admin)).status).toBe(200);
      expect((await get(path, other)).status).toBe(404);
      expect((await get(path, reader)).status).toBe(403);
      expect((await get(`${path}?surprise=1`)).status).toBe(400);
    }
    for (const id of ['x', uuidv7(), '00000000-0000-4000-8000-000000000000']) {
      expect((await get(`/accounts/${id}`)).status).toBe(404);
    }
    for (const query of ['limit=0', 'limit=101', 'limit=1e1', 'cursor=-1', 'cursor=1&cursor=2']) {
      expect((await get(`/accounts/${id}/entries?${query}`)).status).toBe(400);
    }
  });
});

describe('GET /orders/{id}', () => {
  const tell = (order_id: string, client_id: string, amount_minor: bigint) =>
    inTransaction(system.database.pool, (tx) =>
      insertOrder(
        tx,
        { order_id, client_id, customer_id: 'c-1', amount_minor, currency: 'EUR', ordered_at: new Date() },
        uuidv7(),
      ),
    );

  it('shows an order with its payments, and counts what was kept in its own currency', async () => {
    await tell('o-1', 'shop', 1500n);
    expect(Order.parse((await get('/orders/o-1')).body)).toMatchObject({
      status: 'unpaid',
      amount: '15.00',
      payments: [],
    });
    const charged = await system.charge(newCharge({ order_id: 'o-1' }), { api_key: shop });
    await system.charge(newCharge({ order_id: 'o-1', currency: 'USD', amount: '99.00' }), { api_key: shop });
    expect((await get('/orders/o-1')).body).toMatchObject({ status: 'partially_paid', amount_paid: '10.00' });
    await system.charge(newCharge({ order_id: 'o-1', amount: '5.00' }), { api_key: shop });
    expect(Order.parse((await get('/orders/o-1')).body)).toMatchObject({ status: 'paid', amount_paid: '15.00' });
    await request(system.first.url)
      .post(`/payments/${charged.body.id}/refunds`)
      .set('authorization', `Bearer ${shop}`)
      .set('idempotency-key', uuidv7())
      .send({})
      .expect(201);
    expect((await get('/orders/o-1')).body).toMatchObject({ status: 'partially_paid', amount_refunded: '10.00' });
  });

  it('shows each client its own order of a name, and nobody another’s payments', async () => {
    await tell('o-2', 'shop', 100n);
    await tell('o-2', 'other', 200n);
    await tell('o-3', 'other', 300n);
    await system.charge(newCharge({ order_id: 'o-2' }), { api_key: other });
    expect((await get('/orders/o-2')).body).toMatchObject({ amount: '1.00', payments: [] });
    expect((await get('/orders/o-2', other)).body).toMatchObject({ amount: '2.00', payments: [{ amount: '10.00' }] });
    expect((await get('/orders/o-3')).status).toBe(404);
    expect((await get('/orders/o-3', admin)).body.amount).toBe('3.00');
    expect((await get('/orders/%00')).status).toBe(404);
    expect((await get('/orders/o-2', reader)).status).toBe(403);
  });

  it('tells an order once', async () => {
    await tell('o-4', 'shop', 100n);
    await tell('o-4', 'shop', 999n);
    expect((await get('/orders/o-4')).body.amount).toBe('1.00');
  });
});
