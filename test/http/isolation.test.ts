import { randomUUID } from 'node:crypto';
import type { Response } from 'supertest';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { TestSystem } from '../support/app.js';
import { cancel, capture, get, type Made, made, refund } from '../support/follow-up.js';
import { checkFollowUps } from '../support/follow-up-invariants.js';
import { checkInvariants } from '../support/invariants.js';

let system: TestSystem;
let owner: string;
let stranger: string;
let admin: string;
let adminThatWrites: string;
beforeAll(async () => {
  system = await TestSystem.start();
  owner = await system.client('owner', ['payments:read', 'payments:write']);
  stranger = await system.client('stranger', ['payments:read', 'payments:write']);
  admin = await system.client('admin-only', ['admin']);
  adminThatWrites = await system.client('admin-that-writes', ['admin', 'payments:write']);
});
afterAll(() =>
  system.close(async () => {
    await checkInvariants(system);
    await checkFollowUps(system);
  }),
);

interface Owned {
  readonly captured: Made;
  readonly held: Made;
  readonly refund_id: string;
  readonly key: string;
}

let theirs: Owned;
beforeEach(async () => {
  const key = randomUUID();
  const captured = await made(system, {}, { api_key: owner, key });
  const held = await made(system, { capture: 'manual' }, { api_key: owner });
  const given = await refund(system, captured.id, { amount: '1.00' }, { api_key: owner }).expect(201);
  theirs = { captured, held, refund_id: given.body.id, key };
});

/** Every table that a request could change. */
async function everything(): Promise<unknown[]> {
  const tables = ['payment', 'operation', 'idempotency_record', 'outbox_event', 'anomaly', 'timeline_entry'];
  return Promise.all(tables.map((table) => system.query(`select * from ${table} order by 1, 2`)));
}

async function movedFor({ provider_payment_id: payment_id }: Made): Promise<string[]> {
  return (await system.simulator.movements({ payment_id })).map(({ kind }) => kind);
}

type Ask = (of: Owned, api_key: string) => Promise<Response>;
const READS: [string, Ask][] = [
  ['GET /payments/{id}', (of, api_key) => get(system, `/payments/${of.captured.id}`, api_key)],
  ['GET /payments/{id}/refunds', (of, api_key) => get(system, `/payments/${of.captured.id}/refunds`, api_key)],
  ['GET /refunds/{id}', (of, api_key) => get(system, `/refunds/${of.refund_id}`, api_key)],
  ['GET /payments/{id}/timeline', (of, api_key) => get(system, `/payments/${of.captured.id}/timeline`, api_key)],
];
const WRITES: [string, Ask][] = [
  ['POST /payments/{id}/capture', (of, api_key) => capture(system, of.held.id, {}, { api_key, key: randomUUID() })],
  ['POST /payments/{id}/cancel', (of, api_key) => cancel(system, of.held.id, {}, { api_key, key: randomUUID() })],
  ['POST /payments/{id}/refunds', (of, api_key) => refund(system, of.captured.id, {}, { api_key, key: randomUUID() })],
];

describe('another client’s resource', () => {
  it.each([...READS, ...WRITES])('%s: 404 as if it were not there, and nothing changes', async (_name, ask) => {
    const before = await everything();
    const answer = await ask(theirs, stranger);
    expect(answer.status).toBe(404);
    // The same answer as for an id that nobody has.
    const none = {
      ...theirs,
      captured: { ...theirs.captured, id: unusedId() },
      held: { ...theirs.held, id: unusedId() },
      refund_id: unusedId(),
    };
    const nothing = await ask(none, stranger);
    expect({ ...answer.body, request_id: '' }).toEqual({ ...nothing.body, request_id: '' });
    expect(await everything()).toEqual(before);
    expect(await movedFor(theirs.held)).toEqual(['authorization']);
    expect(await movedFor(theirs.captured)).toEqual(['charge', 'refund']);
  });

  it('is not in any list', async () => {
    expect((await get(system, '/payments', stranger).expect(200)).body.data).toEqual([]);
    const named = await get(system, `/payments?external_payment_id=${theirs.held.external_payment_id}`, stranger);
    expect(named.body).toEqual({ data: [], next_cursor: null });
  });

  it('nor are its keys known; the same key is another client’s own', async () => {
    await get(system, `/idempotency-keys/${theirs.key}`, stranger).expect(404);
    const own = await made(system, {}, { api_key: stranger, key: theirs.key });
    expect(own.id).not.toBe(theirs.captured.id);
    expect((await get(system, `/idempotency-keys/${theirs.key}`, owner)).body.resource.id).toBe(theirs.captured.id);
  });

  it('a charge of its external id is refused without a word of it', async () => {
    const before = await system.query('select * from payment order by id');
    const refused = await system.charge(theirs.captured.body, { api_key: stranger }).expect(409);
    expect(refused.body.code).toBe('external_payment_id_taken');
    expect(refused.text).not.toContain(theirs.captured.id);
    expect(refused.body).not.toHaveProperty('payment_id');
    expect(await system.query('select * from payment order by id')).toEqual(before);
  });
});

describe('admin', () => {
  it.each(READS)('%s: reads everybody’s', async (_name, ask) => {
    const [own, seen] = [await ask(theirs, owner), await ask(theirs, admin)];
    expect(seen.status).toBe(200);
    expect(seen.body).toEqual(own.body);
  });

  it('lists everybody’s', async () => {
    const { body } = await get(system, `/payments?external_payment_id=${theirs.held.external_payment_id}`, admin);
    expect(body.data).toMatchObject([{ id: theirs.held.id }]);
  });

  it.each(WRITES)('%s: writes only its own', async (_name, ask) => {
    const before = await everything();
    expect((await ask(theirs, adminThatWrites)).status).toBe(404);
    expect((await ask(theirs, admin)).status).toBe(403);
    expect(await everything()).toEqual(before);
  });

  it('may do with its own what it likes', async () => {
    const own = await made(system, { capture: 'manual' }, { api_key: adminThatWrites });
    await capture(system, own.id, undefined, { api_key: adminThatWrites }).expect(200);
    await refund(system, own.id, {}, { api_key: adminThatWrites }).expect(201);
  });
});

it('scopes: reading does not write, writing does not read', async () => {
  const reader = await system.client('reader', ['payments:read']);
  const writer = await system.client('writer', ['payments:write']);
  const own = await made(system, {}, { api_key: writer });
  for (const answer of [
    await get(system, `/payments/${own.id}`, writer),
    await get(system, '/payments', writer),
    await refund(system, theirs.captured.id, {}, { api_key: reader }),
    await capture(system, theirs.held.id, {}, { api_key: reader }),
    await cancel(system, theirs.held.id, {}, { api_key: reader }),
  ]) {
    expect([answer.status, answer.body.code]).toEqual([403, 'forbidden']);
  }
  await refund(system, own.id, {}, { api_key: writer }).expect(201);
});

function unusedId(): string {
  return '019b3c5e-7a10-7000-8000-00000000dead';
}
