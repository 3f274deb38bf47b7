import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createBatcher } from '../../src/database/batcher.js';
import { beginCharges, type BeginChargeItem, type BeginChargeResult } from '../../src/store/begin-charge.js';
import { readDossier } from '../../src/store/payments.js';
import { endLease, storeAnswer } from '../../src/store/records.js';
import { reserve, type ReserveItem } from '../../src/store/reserve.js';
import { beginItem, beginMany, LEASE_MS, reserveItem } from '../support/charges.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { aCommand } from '../support/domain.js';
import { soon } from '../support/soon.js';

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

async function reserved(count: number): Promise<ReserveItem[]> {
  const items = Array.from({ length: count }, () => reserveItem());
  await reserve(pool, items, LEASE_MS);
  return items;
}

async function rowsOf(external_payment_id: string): Promise<{ payments: number; operations: number }> {
  const { rows } = await pool.query<{ payments: number; operations: number }>(
    `select (select count(*) from payment where external_payment_id = $1)::int as payments,
            (select count(*) from operation o join payment p on p.id = o.payment_id where external_payment_id = $1)::int as operations`,
    [external_payment_id],
  );
  return rows[0]!;
}

const typesOf = (results: readonly BeginChargeResult[]) => results.map(({ type }) => type);

describe('a charge that begins', () => {
  it('is told as it is stored, to the last field', async () => {
    const [lease] = await reserved(1);
    const item: BeginChargeItem = {
      ...beginItem(
        lease!,
        aCommand({
          amount_minor: 9007199254740991n,
          payment_method: 'pm_x',
          capture: 'manual',
          order_id: 'ä',
          description: '',
          metadata: { z: '1', a: '2' },
          return_url: 'https://shop.example/r',
        }),
      ),
      origin: { saga_id: 'saga', step_name: 'step', traceparent: 'trace' },
    };
    const [begun] = await beginCharges(pool, [item]);
    if (begun?.type !== 'begun') throw new Error('not begun');
    const dossier = await readDossier(pool, begun.payment.id);
    expect(dossier?.payment).toEqual(begun.payment);
    expect(dossier?.operations).toEqual([begun.operation]);
    expect(Object.keys(dossier?.payment.metadata ?? {})).toEqual(['z', 'a']);
    expect(begun.operation).toMatchObject({ attempts_started: 1, first_attempt_at: begun.payment.created_at });
  });

  it('under a lease that is not held writes nothing: taken over, answered or released', async () => {
    const [taken, answered, released, held] = await reserved(4);
    await endLease(pool, taken!);
    await reserve(pool, [reserveItem({ ...taken!, token: randomUUID() })], LEASE_MS);
    await storeAnswer(pool, answered!, {
      http_status: 409,
      body: '{}',
      expires_at: new Date(),
      payment_id: null,
      operation_id: null,
    });
    await pool.query('delete from idempotency_record where key = $1', [released!.key]);
    const items = [taken!, answered!, released!, held!].map((lease) => beginItem(lease));
    expect(typesOf(await beginCharges(pool, items))).toEqual(['lease_lost', 'lease_lost', 'lease_lost', 'begun']);
    for (const item of items.slice(0, 3)) {
      expect(await rowsOf(item.command.external_payment_id)).toEqual({ payments: 0, operations: 0 });
    }
  });

  it('run again after a lost acknowledgement finds its own payment and writes nothing', async () => {
    const [lease] = await reserved(1);
    const item = beginItem(lease!);
    expect(typesOf(await beginCharges(pool, [item]))).toEqual(['begun']);
    expect(typesOf(await beginCharges(pool, [item]))).toEqual(['exists']);
    expect(await rowsOf(item.command.external_payment_id)).toEqual({ payments: 1, operations: 1 });
  });

  it('of a name that is taken at the provider, or by its own client elsewhere, exists', async () => {
    const external_payment_id = `order-${randomUUID()}`;
    const items = [
      beginItem(reserveItem({ client_id: 'a' }), aCommand({ external_payment_id, provider: 'sandbox' })),
      beginItem(reserveItem({ client_id: 'b' }), aCommand({ external_payment_id, provider: 'sandbox' })),
      beginItem(reserveItem({ client_id: 'a' }), aCommand({ external_payment_id, provider: 'stripe' })),
      beginItem(reserveItem({ client_id: 'b' }), aCommand({ external_payment_id, provider: 'stripe' })),
    ];
    await reserve(
      pool,
      items.map(({ lease }) => lease as ReserveItem),
      LEASE_MS,
    );
    const results = [];
    for (const item of items) results.push(...(await beginCharges(pool, [item])));
    expect(typesOf(results)).toEqual(['begun', 'exists', 'exists', 'begun']);
  });

  it('two of one name in a batch: one', async () => {
    const leases = await reserved(2);
    const command = aCommand();
    const results = await beginCharges(
      pool,
      leases.map((lease) => beginItem(lease, command)),
    );
    expect(typesOf(results).sort()).toEqual(['begun', 'exists']);
  });
});

describe('while somebody else is at it', () => {
  /** Waits until `count` sessions wait for a lock. */
  async function lockWaiters(count: number): Promise<void> {
    await soon(async () => {
      const { rows } = await pool.query(
        `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      );
      expect(rows).toHaveLength(count);
    });
  }

  it.each([
    [
      'a final answer',
      `update idempotency_record set state = 'done', http_status = 409, body = '{}', expires_at = now(), lease_token = null, lease_until = null, recover_at = null where key = $1`,
    ],
    ['another token', `update idempotency_record set lease_token = gen_random_uuid() where key = $1`],
    ['a release', `delete from idempotency_record where key = $1`],
  ])('%s that commits first wins: no payment begins after it', async (_name, statement) => {
    const [lease, other] = await reserved(2);
    const items = [beginItem(lease!), beginItem(other!)];
    const tx = await pool.connect();
    await tx.query('begin');
    await tx.query(statement, [lease!.key]);
    const beginning = beginCharges(pool, items);
    await lockWaiters(1);
    await tx.query('commit');
    tx.release();
    expect(typesOf(await beginning)).toEqual(['lease_lost', 'begun']);
    expect(await rowsOf(items[0]!.command.external_payment_id)).toEqual({ payments: 0, operations: 0 });
  });

  it('an owner and its paused former self begin the same ids: once, and no error', async () => {
    for (let n = 0; n < 40; n += 1) {
      const [lease] = await reserved(1);
      const item = beginItem(lease!);
      const results = (await Promise.all(Array.from({ length: 6 }, () => beginCharges(pool, [item])))).flat();
      expect(typesOf(results).sort()).toEqual(['begun', 'exists', 'exists', 'exists', 'exists', 'exists']);
    }
  });

  it('one name under 20 keys begins once', async () => {
    for (let n = 0; n < 5; n += 1) {
      const leases = await reserved(20);
      const command = aCommand();
      const results = await Promise.all(leases.map((lease) => beginCharges(pool, [beginItem(lease, command)])));
      expect(typesOf(results.flat()).filter((type) => type === 'begun')).toHaveLength(1);
      expect(await rowsOf(command.external_payment_id)).toEqual({ payments: 1, operations: 1 });
    }
  });

  it('batches whose keys run one way and whose names run the other: no deadlock', async () => {
    for (let round = 0; round < 15; round += 1) {
      const names = Array.from({ length: 12 }, (_, n) => `n-${round}-${String(n).padStart(2, '0')}`);
      const batches = [0, 1, 2, 3].map((session) =>
        names.map((external_payment_id, n) => {
          const key = `k-${round}-${session}-${String(session % 2 === 0 ? n : 99 - n).padStart(2, '0')}`;
          return beginItem(reserveItem({ key }), aCommand({ external_payment_id }));
        }),
      );
      await reserve(
        pool,
        batches.flat().map(({ lease }) => lease as ReserveItem),
        LEASE_MS,
      );
      const results = await Promise.all(batches.map((batch) => beginCharges(pool, batch)));
      expect(typesOf(results.flat()).filter((type) => type === 'begun')).toHaveLength(names.length);
    }
  });
});

describe('a row that the database refuses', () => {
  it('fails alone when it comes through the batcher', async () => {
    const batcher = createBatcher<BeginChargeItem, BeginChargeResult>({
      name: 'begin',
      run: (items) => beginCharges(pool, items),
      max_batch: 50,
      max_queue: 100,
      max_concurrent: 1,
      overtake_after_ms: 10,
    });
    const leases = await reserved(5);
    const bad = [aCommand({ amount_minor: 0n }), aCommand({ customer_id: 'a\0b' })];
    const commands = [aCommand(), bad[0]!, aCommand(), bad[1]!, aCommand()];
    const results = await Promise.allSettled(leases.map((lease, n) => batcher.submit(beginItem(lease, commands[n]))));
    expect(results.map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'fulfilled',
      'rejected',
      'fulfilled',
    ]);
    expect(results[1]).toMatchObject({ reason: { code: '23514' } });
    expect(results[3]).toMatchObject({ reason: { code: '22021' } });
    expect(await beginMany(pool, 1)).toHaveLength(1);
  });
});
