import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  byteaArray,
  int2Array,
  int4Array,
  int8Array,
  textArray,
  timestamptzArray,
  uuidArray,
} from '../../src/database/arrays.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';

let database: TestDatabase;
let pool: pg.Pool;
beforeAll(async () => {
  database = await createTestDatabase();
  pool = database.openPool({ pool_size: 2 });
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});

/** What PostgreSQL reads in an array, element by element. */
async function read(type: string, array: Buffer): Promise<unknown[]> {
  const { rows } = await pool.query<{ value: unknown }>(
    `select value from unnest($1::${type}[]) with ordinality as a(value, place) order by place`,
    [array],
  );
  return rows.map(({ value }) => value);
}

const listOf = <T>(value: fc.Arbitrary<T>) => fc.array(fc.option(value), { maxLength: 30 });
// PostgreSQL has no NUL in text; a lone surrogate is refused at the border.
const text = fc.string({ unit: 'grapheme', maxLength: 50 }).filter((value) => !value.includes('\0'));
const date = fc.date({ min: new Date('1900-01-01'), max: new Date('2200-01-01'), noInvalidDate: true });

describe('arrays in the binary format are read by PostgreSQL as they were given', () => {
  it.each([
    ['text', listOf(text), textArray],
    ['bytea', listOf(fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes))), byteaArray],
    ['uuid', listOf(fc.uuid()), uuidArray],
    ['smallint', listOf(fc.integer({ min: -32768, max: 32767 })), int2Array],
    ['integer', listOf(fc.integer()), int4Array],
    ['bigint', listOf(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })), int8Array],
    ['timestamptz', listOf(date), timestamptzArray],
  ] as [string, fc.Arbitrary<unknown[]>, (values: never) => Buffer][])('%s', async (type, lists, encode) => {
    await fc.assert(
      fc.asyncProperty(lists, async (values) => {
        expect(await read(type, encode(values as never))).toEqual(values);
      }),
      { numRuns: 50 },
    );
  });

  it('of thousands of elements', async () => {
    const values = Array.from({ length: 5_000 }, (_, n) => (n % 3 === 0 ? null : randomBytes(20).toString('base64')));
    expect(await read('text', textArray(values))).toEqual(values);
  });

  it.each(['', 'x', '0192f7e4-0000-7000-8000-00000000000g', '0192f7e400007000800000000000000000-xx', ':'.repeat(36)])(
    'what is no UUID is refused: %j',
    (id) => {
      expect(() => uuidArray([id])).toThrow(TypeError);
    },
  );
});
