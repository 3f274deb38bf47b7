import type pg from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { settleInstallation } from '../../src/store/installation.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';

let database: TestDatabase;
let pool: pg.Pool;
beforeEach(async () => {
  database = await createTestDatabase();
  pool = database.openPool({ pool_size: 8 });
});
afterEach(async () => {
  await pool.end();
  await database.drop();
});

async function addPayment(): Promise<void> {
  await pool.query(
    `INSERT INTO payment (id, client_id, provider, external_payment_id, command_hash, status, amount_minor, currency, customer_id, capture, created_at, updated_at)
     VALUES (gen_random_uuid(), 'shop', 'sandbox', 'order-1', sha256('x'), 'processing', 1, 'EUR', 'c', 'automatic', now(), now())`,
  );
}

test('it is made once, and instances that start together agree', async () => {
  const ids = await Promise.all(Array.from({ length: 8 }, () => settleInstallation(pool, null)));
  expect(new Set(ids).size).toBe(1);
  expect(ids[0]).toMatch(/^[0-9a-f-]{36}$/);
  await addPayment();
  expect(await settleInstallation(pool, null)).toBe(ids[0]);
});

test('a configured one is kept, and may change as long as nothing depends on it', async () => {
  expect(await settleInstallation(pool, 'eu-1')).toBe('eu-1');
  expect(await settleInstallation(pool, null)).toBe('eu-1');
  expect(await settleInstallation(pool, 'eu-2')).toBe('eu-2');
});

test('with payments there, another one is refused', async () => {
  await settleInstallation(pool, 'eu-1');
  await addPayment();
  await expect(settleInstallation(pool, 'eu-2')).rejects.toThrow(
    /^INSTALLATION_ID: .*made by eu-1.*Set INSTALLATION_ID to eu-1/,
  );
  expect(await settleInstallation(pool, 'eu-1')).toBe('eu-1');
});
