import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Database } from '../../src/database/database.js';
import { createTestDatabase } from '../support/database.js';
import type { TestDatabase } from '../support/database.js';

let test_database: TestDatabase;
let database: Database;
beforeAll(async () => {
  test_database = await createTestDatabase();
  database = test_database.open({ pool_size: 4 });
});
afterAll(async () => {
  await database.close();
  await test_database.drop();
});

test('int8 is exact: alone, in arrays, with nulls', async () => {
  const { rows } = await database.pool.query(
    `SELECT 9007199254740993::int8 AS one, ARRAY[1, NULL, 9007199254740993]::int8[] AS many`,
  );
  expect(rows).toEqual([{ one: 9007199254740993n, many: [1n, null, 9007199254740993n] }]);
});

test('Prisma works over the same pool', async () => {
  await database.prisma.apiClient.create({ data: { id: 'shop', name: 'Shop', scopes: ['payments:read'] } });
  expect(await database.prisma.apiClient.findUnique({ where: { id: 'shop' } })).toMatchObject({ name: 'Shop' });
  const { rows } = await database.pool.query(`SELECT count(*) AS clients FROM api_client`);
  expect(rows).toEqual([{ clients: 1n }]);
});
