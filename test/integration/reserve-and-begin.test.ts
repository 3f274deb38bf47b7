import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { takeOverExpired } from '../../src/store/operations.js';
import { beginCharges } from '../../src/store/begin-charge.js';
import { type NewChargeResult, reserveAndBeginCharges } from '../../src/store/reserve-and-begin.js';
import { readDossier } from '../../src/store/payments.js';
import { releaseKey, storeAnswer } from '../../src/store/records.js';
import { reserve } from '../../src/store/reserve.js';
import { LEASE_MS, newChargeItem } from '../support/charges.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { aCommand } from '../support/domain.js';

let database: TestDatabase;
let pool: pg.Pool;
beforeAll(async () => {
  database = await createTestDatabase();
  pool = database.openPool({ pool_size: 20, settings: { deadlock_timeout: '20ms' } });
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});

/** `reserved begun`, `reserved exists`, `in_progress`, … */
function told({ reserved, begun }: NewChargeResult): string {
  const taken_over = reserved.type === 'reserved' && reserved.taken_over ? ' again' : '';
  return `${reserved.type}${taken_over}${begun === null ? '' : ` ${begun.type}`}`;
}

const toldOf = (results: readonly NewChargeResult[]) => results.map(told);

async function rowOf(key: string) {
  const { rows } = await pool.query<{
    recover_at: Date | null;
    lease_until: Date | null;
    check_at: Date | null;
    payments: number;
  }>(
    `select r.recover_at, r.lease_until, o.check_at, (select count(*) from payment p where p.id = r.payment_id)::int as payments
     from idempotency_record r left join operation o on o.id = r.operation_id where r.key = $1`,
    [key],
  );
  return rows[0]!;
}

describe('a charge that is reserved and begun at once', () => {
  it('is told as it is stored; its operation watches its lease', async () => {
    const item = newChargeItem({}, aCommand({ metadata: { z: '1', a: '2' }, capture: 'manual' }));
    const [result] = await reserveAndBeginCharges(pool, [item], LEASE_MS);
    if (result?.begun?.type !== 'begun') throw new Error('not begun');
    expect(result.reserved).toEqual({ type: 'reserved', lease: item.lease, taken_over: false });
    const dossier = await readDossier(pool, item.lease.payment_id);
    expect(dossier?.payment).toEqual(result.begun.payment);
    expect(dossier?.operations).toEqual([result.begun.operation]);
    const { lease_until, recover_at, check_at } = await rowOf(item.lease.key);
    expect(recover_at).toBeNull();
    expect(check_at).toEqual(lease_until);
    expect(lease_until!.getTime() - Date.now()).toBeGreaterThan(LEASE_MS - 5_000);
  });

  it('each by what it meets, in the order of the items: the others are not touched', async () => {
    const [first, done, freed] = [newChargeItem(), newChargeItem(), newChargeItem()];
    expect(toldOf(await reserveAndBeginCharges(pool, [first, done, freed], LEASE_MS))).toEqual(
      Array.from({ length: 3 }, () => 'reserved begun'),
    );
    await storeAnswer(pool, done.lease, {
      http_status: 201,
      body: '{}',
      expires_at: new Date(Date.now() + 60_000),
      payment_id: null,
      operation_id: null,
    });
    await releaseKey(pool, freed.lease);
    const items = [
      newChargeItem({ key: first.lease.key }),
      newChargeItem(),
      newChargeItem({ key: first.lease.key, command_hash: Buffer.alloc(32, 2), client_id: first.lease.client_id }),
      newChargeItem({}, first.command),
      newChargeItem({ key: done.lease.key }),
      newChargeItem({ key: freed.lease.key }, freed.command),
    ];
    // One key never shares a batch, as the batcher sees to it.
    const [second] = items.splice(2, 1);
    expect(toldOf(await reserveAndBeginCharges(pool, items, LEASE_MS))).toEqual([
      'in_progress',
      'reserved begun',
      'reserved exists',
      'done',
      'reserved exists',
    ]);
    expect(toldOf(await reserveAndBeginCharges(pool, [second!], LEASE_MS))).toEqual(['reused']);
  });

  it('where its payment exists its key is reserved alone, and the background job finds it', async () => {
    const other = newChargeItem();
    await reserveAndBeginCharges(pool, [other], LEASE_MS);
    const item = newChargeItem({}, other.command);
    expect(toldOf(await reserveAndBeginCharges(pool, [item], LEASE_MS))).toEqual(['reserved exists']);
    const { recover_at, lease_until, payments } = await rowOf(item.lease.key);
    expect(recover_at).toEqual(lease_until);
    expect(payments).toBe(0);
  });

  it('run again after a lost acknowledgement finds its own, which is then resumed', async () => {
    const item = newChargeItem();
    await reserveAndBeginCharges(pool, [item], LEASE_MS);
    const again = await reserveAndBeginCharges(pool, [item], LEASE_MS);
    expect(toldOf(again)).toEqual(['reserved again']);
    const [begun] = await beginCharges(pool, [item]);
    expect(begun?.type).toBe('exists');
    expect((await rowOf(item.lease.key)).payments).toBe(1);
  });

  it('is found by the background job when its lease is over, and not before', async () => {
    const [over, alive] = [newChargeItem(), newChargeItem()];
    await reserveAndBeginCharges(pool, [over], 0);
    await reserveAndBeginCharges(pool, [alive], LEASE_MS);
    const taken = (await takeOverExpired(pool, 100, LEASE_MS)).map(({ key }) => key);
    expect(taken).toContain(over.lease.key);
    expect(taken).not.toContain(alive.lease.key);
    // Taken over it is watched by the record itself; the operation's check lies in the past and means nothing now.
    expect((await takeOverExpired(pool, 100, LEASE_MS)).map(({ key }) => key)).not.toContain(over.lease.key);
  });
});

describe('while somebody else is at it', () => {
  it('one key in 20 sessions is reserved once, one name under 20 keys begins once', async () => {
    const key = `key-${randomUUID()}`;
    const command = aCommand();
    const sameKey = await Promise.all(
      Array.from({ length: 20 }, () => reserveAndBeginCharges(pool, [newChargeItem({ key })], LEASE_MS)),
    );
    expect(toldOf(sameKey.flat()).sort()).toEqual([
      ...Array.from({ length: 19 }, () => 'in_progress'),
      'reserved begun',
    ]);
    const sameName = await Promise.all(
      Array.from({ length: 20 }, () => reserveAndBeginCharges(pool, [newChargeItem({}, command)], LEASE_MS)),
    );
    expect(toldOf(sameName.flat()).sort()).toEqual([
      'reserved begun',
      ...Array.from({ length: 19 }, () => 'reserved exists'),
    ]);
  });

  it('batches whose keys run one way and whose names run the other, beside the two statements: no deadlock', async () => {
    for (let round = 0; round < 10; round += 1) {
      const names = Array.from({ length: 12 }, (_, n) => `${randomUUID()}-${n}`);
      const keys = names.map((name, n) => `${String(99 - n)}-${name}`);
      const batch = (order: 1 | -1) =>
        names
          .map((external_payment_id, n) => newChargeItem({ key: keys[n]! }, aCommand({ external_payment_id })))
          .sort((a, b) => order * a.command.external_payment_id.localeCompare(b.command.external_payment_id));
      const inTwo = async (): Promise<void> => {
        const items = batch(-1).map((item) => ({ ...item, lease: { ...item.lease, key: `${item.lease.key}-two` } }));
        await reserve(
          pool,
          items.map(({ lease }) => lease),
          LEASE_MS,
        );
        await beginCharges(pool, items);
      };
      const ways = Array.from({ length: 8 }, (_, n) =>
        n % 4 === 3 ? inTwo() : reserveAndBeginCharges(pool, batch(n % 2 === 0 ? 1 : -1), LEASE_MS),
      );
      await Promise.all(ways);
      const { rows } = await pool.query<{ n: number }>(
        'select count(*)::int as n from payment where external_payment_id = any($1)',
        [names],
      );
      expect(rows[0]?.n).toBe(12);
    }
  });
});

it('whatever the grouping, the results are those of one at a time', async () => {
  const step = fc.record({ key: fc.nat(4), name: fc.nat(3), hash: fc.integer({ min: 1, max: 2 }) });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
      const world = (suffix: string) =>
        steps.map(({ key, name, hash }) =>
          newChargeItem(
            { key: `${key}-${suffix}`, command_hash: Buffer.alloc(32, hash) },
            aCommand({ external_payment_id: `${name}-${suffix}` }),
          ),
        );
      const alone = [];
      for (const item of world(randomUUID())) alone.push(...(await reserveAndBeginCharges(pool, [item], LEASE_MS)));
      expect(toldOf(await inBatches(world(randomUUID())))).toEqual(toldOf(alone));
    }),
    { numRuns: 40 },
  );
});

/** As the batcher groups them: in order, no key and no name twice in a batch. */
async function inBatches(items: readonly ReturnType<typeof newChargeItem>[]): Promise<NewChargeResult[]> {
  const results: NewChargeResult[] = [];
  let batch: ReturnType<typeof newChargeItem>[] = [];
  const flush = async (): Promise<void> => {
    if (batch.length > 0) results.push(...(await reserveAndBeginCharges(pool, batch, LEASE_MS)));
    batch = [];
  };
  for (const item of items) {
    const clashes = batch.some(
      (other) =>
        other.lease.key === item.lease.key || other.command.external_payment_id === item.command.external_payment_id,
    );
    if (clashes) await flush();
    batch.push(item);
  }
  await flush();
  return results;
}
