import { describe, expect, it } from 'vitest';
import { QueueFull } from '../../src/database/batcher.js';
import { isUnavailable } from '../../src/database/errors.js';

const withCode = (code: string): Error => Object.assign(new Error('x'), { code });

describe('isUnavailable', () => {
  it.each([
    '08000',
    '08003',
    '08006',
    '08P01',
    '53100',
    '53200',
    '53300',
    '53400',
    '57P01',
    '57P02',
    '57P03',
    '57014',
    '55P03',
  ])('is true for SQLSTATE %s', (code) => expect(isUnavailable(withCode(code))).toBe(true));
  it.each(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN'])('is true for %s', (code) =>
    expect(isUnavailable(withCode(code))).toBe(true),
  );
  it.each([
    ['pg’s pool', new Error('timeout exceeded when trying to connect')],
    ['pg’s client', new Error('Connection terminated unexpectedly')],
    ['pg’s time limit', new Error('Query read timeout')],
    ['a closed pool', new Error('Cannot use a pool after calling end on the pool')],
    ['Prisma’s own codes', withCode('P2024')],
    [
      'a driver’s error inside Prisma’s',
      Object.assign(withCode('P2010'), { meta: { driverAdapterError: { cause: { originalCode: '57P01' } } } }),
    ],
    ['a full queue', new QueueFull('settle: queue is full')],
    ['a cause', new Error('outer', { cause: withCode('ECONNREFUSED') })],
    ['several addresses', new AggregateError([withCode('ECONNREFUSED'), withCode('ECONNREFUSED')])],
  ])('is true for %s', (_name, error) => expect(isUnavailable(error)).toBe(true));

  const circle = new Error('circle');
  circle.cause = circle;
  it.each([
    ['a violated constraint', withCode('23505')],
    ['a syntax error', withCode('42601')],
    ['a serialization failure', withCode('40001')],
    ['a defect', new TypeError('x is not a function')],
    ['a unique violation of Prisma', withCode('P2002')],
    ['a text', 'ECONNREFUSED'],
    ['nothing', undefined],
    ['null', null],
    ['a circle', circle],
  ])('is false for %s', (_name, error) => expect(isUnavailable(error)).toBe(false));
});
