import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chargeProviderKey, commandHash, keyHash, operationProviderKey } from '../../../src/domain/command-hash.js';

const json = fc.jsonValue({ maxDepth: 4 });
const body = fc.dictionary(fc.string(), json);

/** The same value with the members of every object in the opposite order. */
function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value)
    .reverse()
    .map(([name, member]) => [name, reversed(member)] as const);
  return Object.fromEntries(members);
}

describe('commandHash', () => {
  it('is this, for ever: a change would make every stored key a reuse', () => {
    const sent = {
      amount: '10.00',
      currency: 'EUR',
      customer_id: 'c',
      external_payment_id: 'e',
      metadata: { b: '1', a: '€' },
    };
    expect(commandHash('charge', null, sent)).toEqual(
      sha256(
        '["oncepay.command.v1","charge",null,{"amount":"10.00","currency":"EUR","customer_id":"c","external_payment_id":"e","metadata":{"a":"€","b":"1"}}]',
      ),
    );
    expect(commandHash('refund', '019b3c5e-7a10-7000-8000-000000000001', {})).toEqual(
      sha256('["oncepay.command.v1","refund","019b3c5e-7a10-7000-8000-000000000001",{}]'),
    );
  });

  it('does not depend on the order of members, at any depth', () => {
    fc.assert(
      fc.property(body, (sent) => {
        expect(commandHash('charge', null, reversed(sent) as Record<string, unknown>)).toEqual(
          commandHash('charge', null, sent),
        );
      }),
    );
  });

  it('does not depend on white space and escapes of the JSON that was sent', () => {
    fc.assert(
      fc.property(body, (sent) => {
        const compact = JSON.parse(JSON.stringify(sent)) as Record<string, unknown>;
        const spaced = JSON.parse(JSON.stringify(sent, null, '\t').replace(/[^\x20-\x7e\t\n]/g, escaped)) as Record<
          string,
          unknown
        >;
        expect(commandHash('charge', null, spaced)).toEqual(commandHash('charge', null, compact));
      }),
    );
  });

  it('depends on the order of an array', () => {
    expect(commandHash('charge', null, { a: ['1', '2'] })).not.toEqual(commandHash('charge', null, { a: ['2', '1'] }));
  });

  it('differs whenever kind, target or body differ', () => {
    const command = fc.tuple(fc.constantFrom('charge', 'capture', 'cancel', 'refund'), fc.option(fc.string()), body);
    fc.assert(
      fc.property(command, command, (one, other) => {
        const same = JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
        expect(commandHash(...one).equals(commandHash(...other))).toBe(same);
      }),
    );
  });

  it.each([
    [{ a: '1' }, { a: 1 }],
    [{ a: '' }, {}],
    [{ a: null }, {}],
    [{ a: 'null' }, { a: null }],
    [{ 'a":"b","c': 'd' }, { a: 'b', c: 'd' }],
    [{ metadata: { a: 'b' } }, { metadata: {}, a: 'b' }],
    [{ a: 'é' }, { a: 'e\u0301' }],
  ])('tells %j from %j', (one, other) => {
    expect(commandHash('charge', null, one)).not.toEqual(commandHash('charge', null, other));
  });

  it('tells the target "null" from none, and one kind from another', () => {
    const hashes = [
      commandHash('refund', null, {}),
      commandHash('refund', 'null', {}),
      commandHash('cancel', null, {}),
    ];
    expect(new Set(hashes.map((hash) => hash.toString('hex'))).size).toBe(3);
  });

  it('has 32 bytes', () => {
    expect(commandHash('cancel', 'p', {})).toHaveLength(32);
  });
});

describe('keyHash', () => {
  it('is this, for ever', () => {
    expect(keyHash('default', 'order-1001')).toEqual(sha256('["oncepay.key.v1","default","order-1001"]'));
  });

  it('does not run client and key together', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), fc.string(), fc.string(), (client, key, otherClient, otherKey) => {
        const same = client === otherClient && key === otherKey;
        expect(keyHash(client, key).equals(keyHash(otherClient, otherKey))).toBe(same);
      }),
    );
    expect(keyHash('ab', 'c')).not.toEqual(keyHash('a', 'bc'));
    expect(keyHash('a","b', 'c')).not.toEqual(keyHash('a', 'b","c'));
  });
});

describe('provider keys', () => {
  const parts = { installation_id: 'i', client_id: 'c', provider: 'sandbox', external_payment_id: 'e' };
  const charge = { ...parts, try_number: 1 };
  const refund = { ...parts, kind: 'refund', idempotency_key: 'k' } as const;

  it('are these, for ever: a change would charge twice after a lost database', () => {
    expect(chargeProviderKey(charge)).toBe(
      sha256('["oncepay.provider-key.charge.v1","i","c","sandbox","e",1]').toString('hex'),
    );
    expect(operationProviderKey(refund)).toBe(
      sha256('["oncepay.provider-key.operation.v1","i","c","sandbox","e","refund","k"]').toString('hex'),
    );
  });

  it.each(['installation_id', 'client_id', 'provider', 'external_payment_id'] as const)('depend on %s', (part) => {
    expect(chargeProviderKey({ ...charge, [part]: 'other' })).not.toBe(chargeProviderKey(charge));
    expect(operationProviderKey({ ...refund, [part]: 'other' })).not.toBe(operationProviderKey(refund));
  });

  it('depend on the try, the kind and the idempotency key', () => {
    expect(chargeProviderKey({ ...charge, try_number: 2 })).not.toBe(chargeProviderKey(charge));
    expect(operationProviderKey({ ...refund, kind: 'capture' })).not.toBe(operationProviderKey(refund));
    expect(operationProviderKey({ ...refund, idempotency_key: 'l' })).not.toBe(operationProviderKey(refund));
  });

  it('do not depend on the order in which the parts are named', () => {
    expect(chargeProviderKey(reversed(charge) as typeof charge)).toBe(chargeProviderKey(charge));
  });

  it('do not run the parts together', () => {
    const moved = { ...charge, client_id: 'cs', provider: 'andbox' };
    expect(chargeProviderKey(moved)).not.toBe(chargeProviderKey(charge));
  });
});

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return Object.is(value, -0) ? 0 : value;
  return Object.entries(value)
    .map(([name, member]) => [name, sorted(member)] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1));
}
