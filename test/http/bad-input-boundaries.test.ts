import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { newCharge, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';

let system: TestSystem;
beforeAll(async () => {
  system = await TestSystem.start();
});
afterAll(() => system.close(checkInvariants));

const METADATA_50 = Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`name-${n}`, 'x'.repeat(500)]));

// What stands just inside of what bad-input.test.ts refuses: kept as it is, and shown as it is.
it.each([
  ['the smallest amount', { amount: '0.01' }],
  ['an amount of 15 digits', { amount: '90071992547409.91', currency: 'EUR' }],
  ['the largest of a currency without decimals', { amount: '900719925474099', currency: 'JPY' }],
  ['a customer id of 64 characters beyond ASCII', { customer_id: '顧'.repeat(63) + '🙂' }],
  ['an external id of 128 characters', { external_payment_id: `${randomUUID()}${'x'.repeat(92)}` }],
  ['an external id with spaces, quotes and slashes inside', { external_payment_id: `a "b" /../ %00 ${randomUUID()}` }],
  ['a payment method of 255 characters', { payment_method: `tok_${'x'.repeat(251)}` }],
  ['a description of 500 characters of four bytes', { description: '🙂'.repeat(500) }],
  ['an empty description', { description: '' }],
  ['50 pairs of metadata, each value 500 long', { metadata: METADATA_50 }],
  ['a name of 40 characters', { metadata: { ['n'.repeat(40)]: '' } }],
  ['names that objects have', { metadata: { constructor: '1', toString: '2', hasOwnProperty: '3' } }],
  [
    'what SQL and HTML would read',
    { metadata: { a: `'; drop table payment; --`, b: '<script>', c: '\\', d: '{"x":1}' } },
  ],
  ['line ends and control characters', { description: 'a\nb\tc\u0001\u007f\u0085\u2028' }],
  ['text from right to left, and joined', { description: '\u202eabc\u202c e\u0301 👨‍👩‍👧' }],
  ['a return URL with a query', { return_url: 'https://shop.example/return?a=%C3%A4&b=1#c' }],
] as const)('%s', async (_name, more) => {
  const body = newCharge(more);
  const answer = await system.charge(body).expect(201);
  for (const [name, value] of Object.entries(more)) {
    if (name !== 'return_url') expect(answer.body[name], name).toEqual(value);
  }
  expect((await system.getPayment(answer.body.id).expect(200)).text).toBe(answer.text);
});

it.each([
  '42424242424242421', // one digit too many
  '4242424242424241', // the check digit is wrong
  '1234567890123456', // no scheme
  '00004242424242424242', // inside a longer number
  '4242.4242.4242.4242',
  '4242  4242  4242  4242',
  '1764576000123', // a time in milliseconds
  '٤٢٤٢٤٢٤٢٤٢٤٢٤٢٤٢',
])('the long number %s is no card number', async (number) => {
  const body = newCharge({ description: number, metadata: { order: number } });
  await system.charge(body).expect(201);
});

it('ids may look like card numbers: refusing a genuine order number would be worse', async () => {
  const card = '4242424242424242';
  await system
    .charge(newCharge({ customer_id: card, order_id: card, external_payment_id: card }), { key: card })
    .expect(201);
});

it.each([
  ['one character', () => '~'],
  ['255 characters', () => randomUUID().padEnd(255, 'k')],
  ['255 characters in quotes', () => `"${randomUUID().padEnd(255, 'k')}"`],
  ['a path', () => `../../etc/passwd?${randomUUID()}`],
  ['a semicolon and commas', () => `a;b,c,${randomUUID()}`],
  ['spaces inside', () => `a b  c ${randomUUID()}`],
  ['an escaped quote', () => `"a\\"b\\\\${randomUUID()}"`],
  ['percent signs', () => `%00%2f${randomUUID()}`],
])('a key of %s', async (_name, makeKey) => {
  const body = newCharge();
  const key = makeKey();
  const first = await system.charge(body, { key }).expect(201);
  const second = await system.charge(body, { key }).expect(201);
  expect(second.text).toBe(first.text);
  expect(second.headers['idempotent-replayed']).toBe('true');
});

it('keys are told apart by case', async () => {
  const key = `key-${randomUUID()}`;
  await system.charge(newCharge(), { key }).expect(201);
  await system.charge(newCharge(), { key: key.toUpperCase() }).expect(201);
});
