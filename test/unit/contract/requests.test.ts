import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseChargeCommand } from '../../../src/contract/requests.js';
import { commandHash } from '../../../src/domain/command-hash.js';
import { OncepayError } from '../../../src/domain/errors.js';

const context = { providers: ['sandbox', 'stripe'] };
const minimal = { amount: '10.00', currency: 'EUR', customer_id: 'customer-42', external_payment_id: 'order-1001' };
const full = {
  ...minimal,
  provider: 'stripe',
  payment_method: 'pm_success',
  capture: 'manual',
  order_id: '1001',
  description: 'Two books',
  metadata: { cart: 'c-118', 'à la carte': '' },
  return_url: 'https://shop.example/orders/1001?a=b#c',
};

function refusal(body: unknown): OncepayError {
  try {
    parseChargeCommand(body, context);
  } catch (error) {
    if (error instanceof OncepayError) return error;
    throw error;
  }
  throw new Error('was accepted');
}

function refusedPaths(body: unknown): string[] {
  const { code, extra } = refusal(body);
  expect(code).toBe('validation_failed');
  return (extra.errors ?? []).map(({ path }) => path);
}

describe('a charge that is right', () => {
  it('becomes a command, with everything that was sent', () => {
    expect(parseChargeCommand(full, context)).toEqual({
      ...full,
      amount: undefined,
      kind: 'charge',
      amount_minor: 1000n,
      hash: commandHash('charge', null, full),
    });
  });

  it('has defaults in the command', () => {
    expect(parseChargeCommand(minimal, context)).toEqual({
      kind: 'charge',
      hash: commandHash('charge', null, minimal),
      amount_minor: 1000n,
      currency: 'EUR',
      customer_id: 'customer-42',
      external_payment_id: 'order-1001',
      provider: 'sandbox',
      payment_method: null,
      capture: 'automatic',
      order_id: null,
      description: null,
      metadata: null,
      return_url: null,
    });
  });

  it('has no defaults in its hash, so that a changed default changes no hash', () => {
    const { hash } = parseChargeCommand(minimal, context);
    expect(parseChargeCommand(minimal, { providers: ['stripe'] }).hash).toEqual(hash);
    expect(parseChargeCommand({ ...minimal, provider: 'sandbox' }, context).hash).not.toEqual(hash);
    expect(parseChargeCommand({ ...minimal, capture: 'automatic' }, context).hash).not.toEqual(hash);
    expect(parseChargeCommand({ ...minimal, metadata: {} }, context).hash).not.toEqual(hash);
  });

  it.each(['10', '10.0', '10.00', '010.00'])('has the same hash with the amount written %s', (amount) => {
    expect(parseChargeCommand({ ...minimal, amount }, context).hash).toEqual(commandHash('charge', null, minimal));
  });

  it('has the same hash whatever the order of its members', () => {
    const { hash } = parseChargeCommand(full, context);
    fc.assert(
      fc.property(fc.shuffledSubarray(Object.entries(full), { minLength: Object.keys(full).length }), (members) => {
        expect(parseChargeCommand(Object.fromEntries(members), context).hash).toEqual(hash);
      }),
    );
  });

  it('has another hash when any member differs or is missing', () => {
    const others = {
      amount: '10.01',
      currency: 'USD',
      customer_id: 'customer-43',
      external_payment_id: 'Order-1001',
      provider: 'sandbox',
      payment_method: 'pm_success2',
      capture: 'automatic',
      order_id: '1002',
      description: 'two books',
      metadata: { cart: 'c-118', 'à la carte': ' ' },
      return_url: 'https://shop.example/orders/1001?a=b',
    };
    const optional = ['provider', 'payment_method', 'capture', 'order_id', 'description', 'metadata', 'return_url'];
    const bodies = [
      full,
      ...Object.entries(others).map(([name, value]) => ({ ...full, [name]: value })),
      ...optional.map((name) => Object.fromEntries(Object.entries(full).filter(([member]) => member !== name))),
    ];
    const hashes = bodies.map((body) => parseChargeCommand(body, context).hash.toString('hex'));
    expect(new Set(hashes).size).toBe(bodies.length);
  });

  it('counts characters, not UTF-16 units', () => {
    const body = {
      ...minimal,
      customer_id: '😀'.repeat(64),
      description: '😀'.repeat(500),
      metadata: { ['😀'.repeat(40)]: '😀'.repeat(500) },
    };
    expect(parseChargeCommand(body, context).description).toBe(body.description);
  });

  it.each([
    [{ payment_method: 'a b' }],
    [{ customer_id: 'клиент' }],
    [{ description: '' }],
    [{ description: 'line\nline' }],
    [{ metadata: {} }],
    [{ metadata: Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`k${i}`, 'v'])) }],
    [{ metadata: { constructor: 'a', toString: 'b', toJSON: 'c', hasOwnProperty: 'd', length: 'e', then: 'f' } }],
    [{ return_url: 'http://localhost:3000/' }],
    [{ return_url: 'HTTPS://shop.example' }],
    [{ return_url: `https://shop.example/${'a'.repeat(2027)}` }],
    // Long numbers that are no card numbers.
    [{ order_id: '4242424242424242' }],
    [{ customer_id: '4242424242424242' }],
    [{ external_payment_id: '4242424242424242' }],
    [{ description: 'order 4242424242424241, invoice 12345678901234567890' }],
    [{ metadata: { '4242424242424241': '10012345678901' } }],
  ])('may have %j', (members) => {
    const command = parseChargeCommand({ ...minimal, ...members }, context);
    expect(command).toMatchObject(members);
    expect(command.hash).toEqual(commandHash('charge', null, { ...minimal, ...members }));
  });
});

describe('a charge that is wrong', () => {
  it.each([undefined, null, [], [minimal], 'text', '', 1, true])('is refused as a whole: %j', (body) => {
    expect(refusedPaths(body)).toEqual(['']);
  });

  it('is told all of its errors at once', () => {
    expect(refusedPaths({})).toEqual(['/amount', '/currency', '/customer_id', '/external_payment_id']);
    const several = { ...minimal, currency: 'JPY', capture: 'later', customer_id: '', nonsense: 1, return_url: 'x' };
    expect(refusedPaths(several).sort()).toEqual(['/amount', '/capture', '/customer_id', '/nonsense', '/return_url']);
  });

  it.each([
    '1e3',
    '0x10',
    '+5',
    '-10',
    '.5',
    '5.',
    '1,000',
    '1 ',
    ' 1',
    '-0',
    '0',
    '0.00',
    'NaN',
    'Infinity',
    '٣',
    '１２',
    '10.001',
    '',
    '10\n',
    '10\u0000',
    '12345678901234567890',
    '999999999999999',
    10,
    10.5,
    0,
    NaN,
    ['10.00'],
    { value: '10.00' },
    true,
    null,
    undefined,
  ])('in its amount: %j', (amount) => {
    expect(refusedPaths({ ...minimal, amount })).toEqual(['/amount']);
  });

  it.each([
    ['500.50', 'JPY'],
    ['500.0', 'JPY'],
    ['1.0001', 'KWD'],
  ])('in its amount for the currency: %s %s', (amount, currency) => {
    expect(refusedPaths({ ...minimal, amount, currency })).toEqual(['/amount']);
  });

  it.each([
    'usd',
    'USD ',
    'US',
    'USDT',
    'XXX',
    'XTS',
    'XAU',
    'ZZZ',
    'ＵＳＤ',
    '',
    'EUR\n',
    978,
    null,
    undefined,
    ['EUR'],
    '__proto__',
  ])('in its currency: %j', (currency) => {
    expect(refusedPaths({ ...minimal, currency })).toEqual(['/currency']);
  });

  it.each([
    ['customer_id', ''],
    ['customer_id', 'x'.repeat(65)],
    ['customer_id', '😀'.repeat(65)],
    ['customer_id', 42],
    ['customer_id', null],
    ['customer_id', undefined],
    ['customer_id', 'a\u0000'],
    ['customer_id', '\ud800'],
    ['customer_id', 'a\udc00b'],
    ['external_payment_id', ''],
    ['external_payment_id', 'x'.repeat(129)],
    ['external_payment_id', ' a'],
    ['external_payment_id', 'a '],
    ['external_payment_id', ' '],
    ['external_payment_id', 'é'],
    ['external_payment_id', 'a\nb'],
    ['external_payment_id', 'a\u007f'],
    ['external_payment_id', 'a\u0000'],
    ['external_payment_id', null],
    ['external_payment_id', undefined],
    ['external_payment_id', 1001],
    ['provider', ''],
    ['provider', 'paypal'],
    ['provider', 'Sandbox'],
    ['provider', '__proto__'],
    ['provider', 'constructor'],
    ['provider', null],
    ['provider', 1],
    ['payment_method', ''],
    ['payment_method', 'x'.repeat(256)],
    ['payment_method', 'é'],
    ['payment_method', ' pm'],
    ['payment_method', null],
    ['payment_method', { token: 'x' }],
    ['capture', ''],
    ['capture', 'Manual'],
    ['capture', true],
    ['capture', null],
    ['order_id', ''],
    ['order_id', 'x'.repeat(129)],
    ['order_id', 1],
    ['order_id', null],
    ['order_id', '\u0000'],
    ['description', 'x'.repeat(501)],
    ['description', '\ud83d'],
    ['description', null],
    ['description', ['x']],
    ['metadata', null],
    ['metadata', []],
    ['metadata', 'x'],
    ['metadata', 1],
    ['return_url', ''],
    ['return_url', '/orders'],
    ['return_url', 'shop.example'],
    ['return_url', 'ftp://shop.example'],
    ['return_url', 'javascript:alert(1)'],
    ['return_url', 'https://'],
    ['return_url', 'https:shop.example'],
    ['return_url', 'https://shop.example/a b'],
    ['return_url', ' https://shop.example'],
    ['return_url', 'https://shop.example/\n'],
    ['return_url', 'https://shöp.example'],
    ['return_url', 'https://shop.example:99999/'],
    ['return_url', `https://shop.example/${'a'.repeat(2028)}`],
    ['return_url', null],
  ])('in %s: %j', (name, value) => {
    expect(refusedPaths({ ...minimal, [name]: value })).toEqual([`/${name}`]);
  });

  it.each([
    [{ a: 1 }, '/metadata/a'],
    [{ a: null }, '/metadata/a'],
    [{ a: { b: 'c' } }, '/metadata/a'],
    [{ a: ['b'] }, '/metadata/a'],
    [{ a: true }, '/metadata/a'],
    [{ '': 'x' }, '/metadata/'],
    [{ ['k'.repeat(41)]: 'x' }, `/metadata/${'k'.repeat(41)}`],
    [{ ['😀'.repeat(41)]: 'x' }, undefined],
    [{ a: 'x'.repeat(501) }, '/metadata/a'],
    [{ a: '\u0000' }, '/metadata/a'],
    [{ 'a\u0000': 'x' }, '/metadata/a\ufffd'],
    [{ a: '\udfff' }, '/metadata/a'],
    [{ '\ud800': 'x' }, '/metadata/\ufffd'],
    [{ 'a/b~c': 1 }, '/metadata/a~1b~0c'],
    [JSON.parse('{"__proto__":"x"}'), '/metadata/__proto__'],
    [JSON.parse('{"__proto__":{"x":1}}'), '/metadata/__proto__'],
  ])('in its metadata: %j', (metadata, path) => {
    const paths = refusedPaths({ ...minimal, metadata });
    expect(paths).toHaveLength(1);
    if (path !== undefined) expect(paths).toEqual([path]);
  });

  it('with 51 metadata pairs', () => {
    const metadata = Object.fromEntries(Array.from({ length: 51 }, (_, i) => [`k${i}`, 'v']));
    expect(refusedPaths({ ...minimal, metadata })).toEqual(['/metadata']);
  });

  it.each([
    'Amount',
    'id',
    'status',
    'client_id',
    'constructor',
    'toString',
    'amount_minor',
    '',
    '0',
    'amount\u0000',
    '\ud800',
  ])('with the unknown member %j', (name) => {
    expect(refusedPaths({ ...minimal, [name]: 'x' })).toHaveLength(1);
  });

  it('with a member named __proto__, which changes nothing', () => {
    const body: unknown = JSON.parse(`{"__proto__":{"provider":"stripe"},${JSON.stringify(minimal).slice(1)}`);
    expect(refusedPaths(body)).toEqual(['/__proto__']);
    const missing: unknown = JSON.parse(
      '{"__proto__":{"amount":"10.00","currency":"EUR","customer_id":"c","external_payment_id":"e"}}',
    );
    expect(refusedPaths(missing)).toEqual([
      '/amount',
      '/currency',
      '/customer_id',
      '/external_payment_id',
      '/__proto__',
    ]);
  });

  it('is told at most twenty errors, and long names are cut', () => {
    const many = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`x${i}`, 1]));
    expect(refusedPaths({ ...minimal, ...many })).toHaveLength(20);
    expect(refusedPaths({ ...minimal, ['x'.repeat(60_000)]: 1 })[0]?.length).toBeLessThan(80);
  });

  it('says in the detail what to correct', () => {
    expect(refusal({ ...minimal, amount: 10 }).message).toBe('/amount must be a decimal string such as "10.00".');
    expect(refusal({ ...minimal, provider: 'x' }).message).toBe('/provider must be one of: sandbox, stripe.');
    expect(refusal({ ...minimal, capture: null }).message).toContain(
      'leave an optional member out instead of sending null',
    );
    expect(refusal({}).message).toBe('/amount is required (and 3 more, see errors).');
    expect(refusal(undefined).message).toBe('The body is missing; a JSON object is required.');
  });

  it('never becomes a command without a refusal of the two kinds, whatever the body', () => {
    const body = fc.oneof(
      fc.jsonValue(),
      fc.record(
        { ...Object.fromEntries(Object.keys(full).map((name) => [name, fc.jsonValue({ maxDepth: 1 })])) },
        { requiredKeys: [] },
      ),
    );
    fc.assert(
      fc.property(body, (anything) => {
        expect(['validation_failed', 'card_number_rejected']).toContain(refusal(anything).code);
      }),
    );
  });
});

describe('a card number', () => {
  const card = '4242 4242-4242 4242';

  it.each([
    [{ payment_method: card }, '/payment_method'],
    [{ payment_method: '378282246310005' }, '/payment_method'],
    [{ description: `Card ${card}, exp. 12/30` }, '/description'],
    [{ metadata: { note: card } }, '/metadata/note'],
    [{ metadata: { [card]: 'note' } }, '/metadata'],
  ])('is refused in %j, by its place and without the number', (members, path) => {
    const error = refusal({ ...minimal, ...members });
    expect(error.code).toBe('card_number_rejected');
    expect(error.extra.errors?.map((field) => field.path)).toEqual([path]);
    expect(`${error.message}${JSON.stringify(error.extra)}`).not.toMatch(/\d{4}/);
  });

  it('is not repeated where it is the name of an unknown member', () => {
    const error = refusal({ ...minimal, [card]: 'x' });
    expect(error.code).toBe('validation_failed');
    expect(`${error.message}${JSON.stringify(error.extra)}`).not.toMatch(/\d{4}/);
  });
});
