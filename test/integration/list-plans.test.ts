import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parsePaymentListQuery } from '../../src/contract/query.js';
import type { Database } from '../../src/database/database.js';
import { INDEX_PLANS } from '../../src/database/session.js';
import { inTransaction } from '../../src/database/transaction.js';
import { listNeedsReview, listOpenAnomalies, listParkedEvents, listUnknown } from '../../src/store/operator-lists.js';
import { findOrder, paidOnOrder, paymentsOfOrder } from '../../src/store/order-projection.js';
import { readDossier } from '../../src/store/payments.js';
import { listPayments, listRefunds, type Owner, readKey } from '../../src/store/queries.js';
import { readTimeline } from '../../src/store/timeline.js';
import { listEntries } from '../../src/wallet/ledger.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { FINISHED, insertFinished, readsOf } from '../support/many-rows.js';

/**
 * Every list reads about a page, however many rows there are. Each is read by the function that its route calls, through
 * a pool or Prisma client of one connection with the service's settings, planned with statistics.
 */
const CLIENTS = ['default', 'other'];
/** The oldest payments, of a provider that is no longer in use. */
const RETIRED = 2_000;
const RARE = ['processing', 'requires_action', 'authorized', 'failed', 'canceled'];
const ACCOUNT_ID = randomUUID();
/** A statement with a name is planned for its values five times before PostgreSQL may keep a plan for all values. */
const FIRST_RUNS = 6;

/** Of 20,000. A page of 100 payments and one more; the ends of an index that the planner itself looks at count too. */
const ROWS_MAX = 300;
/** Of some 1,400: a row may lie on a page of its own, and each index is walked down from its root. */
const PAGES_MAX = 80;

let database: TestDatabase;
let service: Database;
/** As `npm run operations` connects. */
let operator: pg.Pool;
/** One of the payments, neither new nor old. */
let middle: { readonly id: string; readonly created_at: string };
beforeAll(async () => {
  database = await createTestDatabase();
  service = database.open({ pool_size: 1, settings: INDEX_PLANS });
  operator = database.openPool({ pool_size: 1 });
  await inTransaction(service.pool, insertAll);
  // Vacuumed too: the versions that updates left behind would be read with the rows.
  await service.pool.query('vacuum analyze');
  const { rows } = await service.pool.query<typeof middle>(
    `select id, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as created_at
     from payment order by created_at limit 1 offset ${FINISHED / 2}`,
  );
  if (rows[0] === undefined) throw new Error('there are no payments');
  [middle] = rows;
});
afterAll(async () => {
  await operator.end();
  await service.close();
  await database.drop();
});

async function insertAll(tx: pg.PoolClient): Promise<void> {
  await tx.query(`insert into api_client (id, name, scopes) select id, id, '{}' from unnest($1::text[]) id`, [CLIENTS]);
  await insertFinished(tx);
  // Half of them of one customer, the others of a thousand; two of each order.
  await tx.query(
    `update payment set provider = case when i <= ${RETIRED} then 'retired' else provider end, order_id = 'order-' || i / 2,
       customer_id = case i % 2 when 0 then 'c' else 'c-' || i % 2000 end
     from made where payment.id = payment_id`,
  );
  // The oldest are in every status that few are in; none is in requires_action.
  await tx.query(
    `update payment set status = case when i <= 5 then 'processing' when i <= 10 then 'failed' when i <= 15 then 'authorized' else 'canceled' end
     from made where payment.id = payment_id and i <= 20`,
  );
  await tx.query(`update operation set status = 'processing' from made where operation.id = made.id and i <= 5`);
  await tx.query(
    `insert into order_projection (client_id, order_id, customer_id, amount_minor, currency, ordered_at, event_id)
     select 'default', 'order-' || i, 'c', 200, 'EUR', now(), i::text from made`,
  );
  await tx.query(
    `insert into provider_event (id, provider, event_id, type, payment_id, operation_id, outcome)
     select gen_random_uuid(), 'sandbox', i::text, 'x', payment_id, id, 'applied' from made`,
  );
  await tx.query(
    `insert into anomaly (id, payment_id, operation_id, kind, resolved_at) select gen_random_uuid(), payment_id, id, 'late_success', now() from made`,
  );
  await tx.query(
    `insert into timeline_entry (id, payment_id, operation_id, type) select gen_random_uuid(), payment_id, id, 'request' from made`,
  );
  await insertEntries(tx);
}

/** As many entries of one account, each balanced by one of the outside. */
async function insertEntries(tx: pg.PoolClient): Promise<void> {
  const outside = randomUUID();
  await tx.query(
    `insert into account (id, client_id, kind, currency) values ($1, 'default', 'internal', 'EUR'), ($2, 'default', 'external', 'EUR')`,
    [ACCOUNT_ID, outside],
  );
  await tx.query(
    `insert into transfer (transfer_id, client_id, debit_account_id, credit_account_id, amount_minor, currency, status)
     select id, 'default', $1, $2, 1, 'EUR', 'posted' from made`,
    [outside, ACCOUNT_ID],
  );
  await tx.query(
    `insert into ledger_entry (account_id, sequence, transfer_id, amount_minor, balance_minor)
     select $1::uuid, i, id, 1, i from made union all select $2::uuid, i, id, -1, -i from made`,
    [ACCOUNT_ID, outside],
  );
}

async function expectAPage(pool: pg.Pool, list: () => Promise<unknown>): Promise<void> {
  for (let run = 0; run < FIRST_RUNS; run += 1) await list();
  const { rows, pages } = await readsOf(pool, list);
  expect(rows, 'rows').toBeLessThan(ROWS_MAX);
  expect(pages, 'pages').toBeLessThan(PAGES_MAX);
}

const OWNERS: [string, Owner][] = [
  ['a client', { client_id: 'default' }],
  ['everybody', 'everybody'],
];

describe.each(OWNERS)('GET /payments of %s reads about a page', (_name, owner) => {
  it.each<[string, () => Record<string, string>]>([
    ['newest', () => ({})],
    ['newest 100', () => ({ limit: '100' })],
    ['a common status', () => ({ status: 'succeeded' })],
    ...RARE.map((status): [string, () => Record<string, string>] => [`the rare status ${status}`, () => ({ status })]),
    ['a rare status since the middle', () => ({ status: 'canceled', created_from: middle.created_at })],
    ['a rare status, a provider', () => ({ status: 'canceled', provider: 'retired' })],
    ['a customer of few payments', () => ({ customer_id: 'c-1' })],
    ['a customer of many', () => ({ customer_id: 'c', limit: '100' })],
    ['a customer of none', () => ({ customer_id: 'nobody' })],
    ['a name that is there', () => ({ external_payment_id: 'finished-5' })],
    ['a name that is not', () => ({ external_payment_id: 'nobody-has-this' })],
    ['a provider in use', () => ({ provider: 'sandbox' })],
    ['a provider that is no longer in use', () => ({ provider: 'retired' })],
    ['a provider that is not there', () => ({ provider: 'never-used' })],
    ['since the middle', () => ({ created_from: middle.created_at })],
    ['until the middle', () => ({ created_to: middle.created_at })],
    ['a moment in the middle', () => ({ created_from: middle.created_at, created_to: later(middle.created_at, 5) })],
    ['a time before all', () => ({ created_to: '2020-01-01T00:00:00Z' })],
    ['a time after all', () => ({ created_from: '2100-01-01T00:00:00Z' })],
    ['a customer of many, until the middle', () => ({ customer_id: 'c', created_to: middle.created_at })],
    ['a customer of few, of another status', () => ({ customer_id: 'c-1', status: 'canceled' })],
    [
      'a provider, a status, until the middle',
      () => ({ provider: 'sandbox', status: 'succeeded', created_to: middle.created_at }),
    ],
    ['a name of another status', () => ({ external_payment_id: 'finished-5', status: 'canceled' })],
  ])('%s', async (_list, filters) => {
    const query = parsePaymentListQuery(filters());
    await expectAPage(service.pool, () => listPayments(service.pool, owner, query));
  });

  it.each<[string, Record<string, string>]>([
    ['newest', {}],
    ['a status', { status: 'succeeded' }],
    ['a customer of many', { customer_id: 'c' }],
    ['a provider', { provider: 'sandbox' }],
  ])('%s, a page further on', async (_list, filters) => {
    const query = { ...parsePaymentListQuery(filters), after: middle };
    await expectAPage(service.pool, () => listPayments(service.pool, owner, query));
  });
});

describe('what belongs to one thing is read without the others', () => {
  it.each<[string, (database: Database) => Promise<unknown>]>([
    ['the timeline of a payment', ({ prisma }) => readTimeline(prisma, middle.id)],
    ['the refunds of a payment', ({ pool }) => listRefunds(pool, middle.id)],
    ['a payment with its operations', ({ pool }) => readDossier(pool, middle.id)],
    ['a key', ({ pool }) => readKey(pool, 'default', 'finished-5')],
    ['an order', ({ pool }) => findOrder(pool, 'order-5', { client_id: 'default', any_client: false })],
    ['an order of any client', ({ pool }) => findOrder(pool, 'order-5', { client_id: 'other', any_client: true })],
    [
      'the payments of an order',
      ({ pool }) => paymentsOfOrder(pool, { client_id: 'default', order_id: 'order-5' }, 100),
    ],
    [
      'what was paid on an order',
      ({ pool }) => paidOnOrder(pool, { client_id: 'default', order_id: 'order-5', currency: 'EUR' }),
    ],
    ['the newest entries of an account', ({ pool }) => listEntries(pool, ACCOUNT_ID, { before: null, limit: 20 })],
    ['its oldest entries', ({ pool }) => listEntries(pool, ACCOUNT_ID, { before: 20, limit: 20 })],
  ])('%s', async (_list, read) => {
    await expectAPage(service.pool, () => read(service));
  });
});

describe('what operators list is read without what is finished', () => {
  it.each<[string, (pool: pg.Pool) => Promise<unknown>]>([
    ['what needs an operator', (pool) => listNeedsReview(pool, 51)],
    ['outcomes unknown', (pool) => listUnknown(pool, 0, 51)],
    ['open anomalies', (pool) => listOpenAnomalies(pool, 51)],
    ['parked provider events', (pool) => listParkedEvents(pool, 51)],
  ])('%s', async (_list, list) => {
    await expectAPage(operator, () => list(operator));
  });
});

/** Some milliseconds later, as an RFC 3339 time. */
function later(time: string, by_ms: number): string {
  return new Date(Date.parse(time) + by_ms).toISOString();
}
