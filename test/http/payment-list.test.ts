import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import type { Response } from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { encodeCursor } from '../../src/contract/cursor.js';
import { parsePaymentListQuery } from '../../src/contract/query.js';
import { PaymentList } from '../../src/contract/schemas.js';
import { listPayments, type Owner } from '../../src/store/queries.js';
import { newCharge, TestSystem } from '../support/app.js';
import { capture, get, made } from '../support/follow-up.js';

const COUNT = 110;
const INSTANT = '2026-01-31T10:00:00.123';

let system: TestSystem;
let shop: string;
let other: string;
beforeAll(async () => {
  system = await TestSystem.start();
  shop = await system.client('shop', ['payments:read', 'payments:write']);
  other = await system.client('other', ['payments:read', 'payments:write']);
  for (const api_key of [shop, other]) {
    await Promise.all(Array.from({ length: COUNT }, () => system.charge(newCharge(), { api_key }).expect(201)));
  }
});
afterAll(() => system.close());

const list = (query: string, api_key = shop): Promise<Response> =>
  get(system, `/payments${query}`, api_key).then((answer) => answer);

async function listed(query: Record<string, string>, api_key = shop): Promise<string[]> {
  const answer = await list(`?${new URLSearchParams(query).toString()}`, api_key);
  expect(answer.status, answer.text).toBe(200);
  return answer.body.data.map(({ id }: { id: string }) => id);
}

/** All pages, one after the other. */
async function walk(
  query: Record<string, string>,
  api_key = shop,
  between?: () => Promise<unknown>,
): Promise<string[]> {
  const seen: string[] = [];
  let cursor: string | null = null;
  do {
    const page: Response = await list(
      `?${new URLSearchParams({ ...query, ...(cursor === null ? {} : { cursor }) }).toString()}`,
      api_key,
    );
    expect(page.status, page.text).toBe(200);
    expect(page.body.data.length).toBeGreaterThan(0);
    seen.push(...page.body.data.map(({ id }: { id: string }) => id));
    cursor = page.body.next_cursor;
    await between?.();
  } while (cursor !== null);
  return seen;
}

/** The ids as SQL sorts them. */
async function ids(where = `client_id = 'shop'`): Promise<string[]> {
  const rows = await system.query<{ id: string }>(
    `select id from payment where ${where} order by created_at desc, id desc`,
  );
  return rows.map(({ id }) => id);
}

describe('paging', () => {
  it('neither skips nor repeats rows of the same instant, whatever the size of the pages', async () => {
    await system.query(`update payment set created_at = '${INSTANT}456Z'`);
    const all = await ids();
    expect(all).toHaveLength(COUNT);
    for (const limit of ['1', '7', '55', '100']) expect(await walk({ limit }), `pages of ${limit}`).toEqual(all);
  });

  it('nor those of one millisecond that differ in microseconds', async () => {
    await system.query(
      `update payment p set created_at = '${INSTANT}Z'::timestamptz + (n % 9) * interval '1 microsecond'
       from (select id, row_number() over (order by md5(id::text)) as n from payment) as numbered
       where numbered.id = p.id`,
    );
    expect(await walk({ limit: '10' })).toEqual(await ids());
    const answer = await list('?limit=1');
    expect(answer.body.data[0].created_at).toBe(`${INSTANT}Z`);
  });

  it('payments made meanwhile do not shift the pages', async () => {
    const before = await ids();
    const pages = await walk({ limit: '40' }, shop, () => system.charge(newCharge(), { api_key: shop }).expect(201));
    expect(pages).toEqual(before);
  });

  it('an admin sees everybody’s, merged, page by page', async () => {
    await system.query(`update payment set created_at = '${INSTANT}456Z'`);
    expect(await walk({ limit: '33' }, system.api_key)).toEqual(await ids('true'));
  });

  it('the size of a page may change on the way; the filters may not', async () => {
    const first = await list('?limit=3&status=succeeded');
    const { next_cursor } = first.body;
    const second = await listed({ limit: '5', status: 'succeeded', cursor: next_cursor });
    expect(second).toEqual((await ids()).slice(3, 8));
    const others: Record<string, string>[] = [
      {},
      { status: 'failed' },
      { status: 'succeeded', customer_id: 'customer-1' },
    ];
    for (const query of others) {
      const refused = await list(`?${new URLSearchParams({ ...query, cursor: next_cursor }).toString()}`);
      expect([refused.status, refused.body.code]).toEqual([400, 'validation_failed']);
      expect(refused.body.errors).toEqual([expect.objectContaining({ path: 'query/cursor' })]);
    }
  });

  it('has 20 payments where no size is asked for, each in the form of the contract', async () => {
    const answer = await list('');
    expect(answer.body.data).toHaveLength(20);
    expect(() => PaymentList.parse(answer.body)).not.toThrow();
    const none = await list('?external_payment_id=there-is-none');
    expect(none.body).toEqual({ data: [], next_cursor: null });
  });
});

describe('a cursor', () => {
  it('that is forged, cut, or of another list is 400, and shows nothing', async () => {
    const { next_cursor: cursor } = (await list('?limit=1')).body;
    const position = { created_at: `${INSTANT}456Z`, id: (await ids())[0]! };
    const forged = [
      'x',
      cursor.slice(0, -1),
      `${cursor}A`,
      `${cursor.slice(0, 20)}${cursor[20] === 'A' ? 'B' : 'A'}${cursor.slice(21)}`,
      `${cursor}=`,
      encodeCursor(position, ['refunds']),
      encodeCursor({ ...position, created_at: '2026-13-31T10:00:00.123456Z' }, [
        'payments',
        null,
        null,
        null,
        null,
        null,
        null,
      ]),
      Buffer.from(JSON.stringify({ created_at: '2026-01-31', id: '1' })).toString('base64url'),
      "' or 1=1 --",
      '\u0000',
      'ü'.repeat(100),
    ];
    for (const text of forged) {
      const refused = await list(`?limit=1&cursor=${encodeURIComponent(text)}`);
      expect([refused.status, refused.body.code], JSON.stringify(text)).toEqual([400, 'validation_failed']);
      expect(refused.body.errors[0].path).toBe('query/cursor');
    }
  });

  it('of another client shows this client’s payments only', async () => {
    const { next_cursor: cursor } = (await list('?limit=5', other)).body;
    const seen = await listed({ limit: '100', cursor });
    const own = new Set(await ids());
    expect(seen.every((id) => own.has(id))).toBe(true);
  });
});

describe('filters', () => {
  it('by status, customer, name and provider, alone and together', async () => {
    const api_key = await system.client('filters', ['payments:read', 'payments:write']);
    const as = { api_key };
    const paid = await made(system, { customer_id: 'ann', external_payment_id: `a b~${randomUUID()}` }, as);
    const declined = await made(system, { customer_id: 'ann', payment_method: 'pm_decline_card_declined' }, as);
    const held = await made(system, { customer_id: 'bob', capture: 'manual' }, as);
    const captured = await made(system, { customer_id: 'bob', capture: 'manual' }, as);
    await capture(system, captured.id, undefined, as).expect(200);
    const open = await made(system, { customer_id: 'bob', payment_method: 'pm_requires_action' }, as);

    const cases: [Record<string, string>, { id: string }[]][] = [
      [{ status: 'succeeded' }, [captured, paid]],
      [{ status: 'failed' }, [declined]],
      [{ status: 'authorized' }, [held]],
      [{ status: 'requires_action' }, [open]],
      [{ status: 'canceled' }, []],
      [{ status: 'processing' }, []],
      [{ customer_id: 'ann' }, [declined, paid]],
      [{ customer_id: 'Ann' }, []],
      [{ customer_id: 'bob', status: 'succeeded' }, [captured]],
      [{ external_payment_id: paid.external_payment_id }, [paid]],
      [{ external_payment_id: paid.external_payment_id, customer_id: 'bob' }, []],
      [{ provider: 'sandbox', customer_id: 'ann', status: 'failed' }, [declined]],
      [{ provider: 'stripe' }, []],
    ];
    for (const [query, expected] of cases) {
      expect(await listed(query, api_key), JSON.stringify(query)).toEqual(expected.map(({ id }) => id));
    }
    // Of another client it is not found, also by its name.
    expect(await listed({ external_payment_id: paid.external_payment_id }, other)).toEqual([]);
  });

  it('by time, to the microsecond: from is included, to is not', async () => {
    const api_key = await system.client('times', ['payments:read', 'payments:write']);
    const [a, b, c] = [
      await made(system, {}, { api_key }),
      await made(system, {}, { api_key }),
      await made(system, {}, { api_key }),
    ];
    const times = ['10:00:00.000001', '10:00:00.000002', '10:00:01'];
    for (const [n, { id }] of [a, b, c].entries()) {
      await system.query(`update payment set created_at = $2 where id = $1`, [id, `2026-03-01T${times[n]}Z`]);
    }
    const at = (time: string): string => `2026-03-01T${time}Z`;
    const cases: [Record<string, string>, { id: string }[]][] = [
      [{ created_from: at('10:00:00.000002') }, [c, b]],
      [{ created_to: at('10:00:00.000002') }, [a]],
      [{ created_from: at('10:00:00'), created_to: at('10:00:01') }, [b, a]],
      [{ created_from: '2026-03-01T12:00:00.000002+02:00', created_to: at('10:00:01.000001') }, [c, b]],
      [{ created_from: at('10:00:01'), created_to: at('10:00:01') }, []],
    ];
    for (const [query, expected] of cases) {
      expect(await listed(query, api_key), JSON.stringify(query)).toEqual(expected.map(({ id }) => id));
    }
  });
});

it('query values are read strictly: each of these is 400 with its place', async () => {
  const cases: [string, string][] = [
    ...['0x10', '1e1', '%205', '5%20', '+5', '%2B5', '05', '0', '101', '-1', '5.0', '', 'ten', '%D9%A5', '5%00'].map(
      (limit): [string, string] => [`limit=${limit}`, 'query/limit'],
    ),
    ['limit=5&limit=5', 'query/limit'],
    ['status=succeeded&status=failed', 'query/status'],
    ['status=', 'query/status'],
    ['status=Succeeded', 'query/status'],
    ['customer_id=', 'query/customer_id'],
    ['customer_id=a&customer_id=b', 'query/customer_id'],
    [`customer_id=${'x'.repeat(65)}`, 'query/customer_id'],
    ['customer_id=%00', 'query/customer_id'],
    ['external_payment_id=%C3%BC', 'query/external_payment_id'],
    ['external_payment_id=%20x', 'query/external_payment_id'],
    ['provider=Sand%20box', 'query/provider'],
    ['created_from=yesterday', 'query/created_from'],
    ['created_from=2026-02-30T00:00:00Z', 'query/created_from'],
    ['created_from=2026-01-31', 'query/created_from'],
    ['created_from=1767225600', 'query/created_from'],
    ['created_from=2026-02-01T00:00:00Z&created_to=2026-01-01T00:00:00Z', 'query/created_to'],
    ['cursor=', 'query/cursor'],
    ['cursor=a&cursor=b', 'query/cursor'],
    ['page=2', 'query/page'],
    ['limit[]=5', 'query/limit[]'],
    ['__proto__=1', 'query/__proto__'],
  ];
  for (const [query, path] of cases) {
    const refused = await list(`?${query}`);
    expect([refused.status, refused.body.code], query).toEqual([400, 'validation_failed']);
    expect(
      refused.body.errors.map((error: { path: string }) => error.path),
      query,
    ).toContain(path);
  }
  // Routes that know no parameters refuse every one.
  const id = (await ids())[0]!;
  for (const path of [
    `/payments/${id}`,
    `/payments/${id}/refunds`,
    `/payments/${id}/timeline`,
    '/idempotency-keys/k',
  ]) {
    const refused = await get(system, `${path}?limit=5`, shop);
    expect([refused.status, refused.body.code], path).toEqual([400, 'validation_failed']);
  }
});

describe('with many payments', () => {
  beforeAll(async () => {
    await system.query(
      `insert into payment (id, client_id, provider, external_payment_id, command_hash, status, amount_minor, currency,
         customer_id, capture, created_at, updated_at)
       select gen_random_uuid(), 'bulk-' || n % 4, 'sandbox', 'bulk-' || n, sha256(n::text::bytea), 'succeeded', 100, 'EUR',
         'customer-' || n % 500, 'automatic', now() - n * interval '1 second', now()
       from generate_series(1, 20000) as n`,
    );
    await system.query(
      `insert into api_client (id, name, scopes) select 'bulk-' || n, 'bulk', '{}' from generate_series(0, 3) as n`,
    );
    await system.query('analyze payment');
    await system.query('analyze api_client');
  });

  const own: Owner = { client_id: 'bulk-1' };
  const cases: [string, Owner, Record<string, string>, string][] = [
    ['the list of a client', own, {}, 'payment_list'],
    ['a page further on', own, { after: 'yes' }, 'payment_list'],
    ['the list of a customer', own, { customer_id: 'customer-7' }, 'payment_customer'],
    ['one name', own, { external_payment_id: 'bulk-5' }, 'payment_client_external_id'],
    [
      'a span of time',
      own,
      { created_from: '2026-01-01T00:00:00Z', created_to: '2026-01-02T00:00:00Z' },
      'payment_list',
    ],
    ['everybody’s list', 'everybody', {}, 'payment_list'],
  ];
  it.each(cases)('%s is read by an index, and not more of it than a page', async (_name, owner, query, index) => {
    const { after, ...filters } = query;
    const parsed = parsePaymentListQuery(filters);
    const at = { created_at: '2026-06-01T00:00:00.000000Z', id: randomUUID() };
    const plan = await planOf((pool) =>
      listPayments(pool, owner, after === undefined ? parsed : { ...parsed, after: at }),
    );
    expect(plan).toContain(`"Index Name": "${index}"`);
    expect(plan).not.toMatch(/"Node Type": "Seq Scan",[^}]*"Relation Name": "payment"/);
  });
});

/** How the database would run what a function of the store asks it. */
async function planOf(ask: (pool: pg.Pool) => Promise<unknown>): Promise<string> {
  let plan = '';
  const explaining = {
    query: async ({ text, values }: { text: string; values: unknown[] }) => {
      const rows = await system.query<{ 'QUERY PLAN': unknown }>(`explain (format json) ${text}`, values);
      plan = JSON.stringify(rows[0]!['QUERY PLAN'], null, 1);
      return { rows: [] };
    },
  } as unknown as pg.Pool;
  await ask(explaining);
  return plan;
}
