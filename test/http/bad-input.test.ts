import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { newCharge, TestSystem } from '../support/app.js';
import { RawConnection, type RawAnswer, sendRaw } from '../support/raw-http.js';

let system: TestSystem;
beforeAll(async () => {
  system = await TestSystem.start();
});
afterAll(async () => {
  const calls = await system.simulator.calls();
  await system.close();
  expect(calls, 'what was refused never gets to the provider').toEqual([]);
});
// Nothing in this file is accepted: no row may come of any of it.
afterEach(async () => {
  const [row] = await system.query(
    `select (select count(*) from payment)::int as payments, (select count(*) from operation)::int as operations,
            (select count(*) from idempotency_record)::int as records, (select count(*) from outbox_event)::int as events,
            (select count(*) from anomaly)::int as anomalies, (select count(*) from timeline_entry)::int as entries`,
  );
  expect(row).toEqual({ payments: 0, operations: 0, records: 0, events: 0, anomalies: 0, entries: 0 });
});

interface Raw {
  readonly method?: string;
  readonly path?: string;
  /** Whole header lines, beside or (by name) instead of the usual ones. */
  readonly headers?: readonly string[];
  /** Names of usual headers to leave out. */
  readonly without?: readonly string[];
  readonly body?: string | Buffer;
}

/** Bytes as they are: no client library in between that would tidy them. */
async function send({
  method = 'POST',
  path = '/payments',
  headers = [],
  without = [],
  body,
}: Raw): Promise<RawAnswer> {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(body ?? JSON.stringify(newCharge()), 'utf8');
  const usual = [
    'Host: x',
    `Authorization: Bearer ${system.api_key}`,
    `Idempotency-Key: ${randomUUID()}`,
    'Content-Type: application/json',
    `Content-Length: ${bytes.length}`,
    'Connection: close',
  ];
  const given = new Set([...headers.map(nameOf), ...without.map((name) => name.toLowerCase())]);
  const lines = [...usual.filter((line) => !given.has(nameOf(line))), ...headers];
  const head = `${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`;
  return sendRaw(system.first.url, head + bytes.toString('latin1'));
}

function nameOf(line: string): string {
  return line.slice(0, line.indexOf(':')).toLowerCase();
}

function expectProblem(answer: RawAnswer, status: number, code: string): Record<string, unknown> {
  const body = JSON.parse(Buffer.from(answer.body, 'latin1').toString('utf8')) as Record<string, unknown>;
  expect({ status: answer.status, code: body.code }).toEqual({ status, code });
  expect(answer.headers['content-type']).toBe('application/problem+json; charset=utf-8');
  expect(answer.headers['request-id']).toBe(body.request_id);
  expect(body).toMatchObject({ type: `/problems/${code}`, status });
  expect(answer.headers['idempotency-key-expires']).toBeUndefined();
  return body;
}

/** The error that a body is refused with, at its place. */
async function expectRefused(body: unknown, path: string): Promise<void> {
  const answer = await send({ body: JSON.stringify(body) });
  const { errors } = expectProblem(answer, 400, 'validation_failed');
  expect((errors as { path: string }[]).map((error) => error.path)).toContain(path);
}

describe('amounts', () => {
  it.each([
    '1e3',
    '1E3',
    '0x10',
    '0b1',
    '0o7',
    '+5',
    '-5',
    '.5',
    '5.',
    '1,000',
    '1,5',
    '1_000',
    '1 ',
    ' 1',
    '1\n',
    '\t1',
    '-0',
    '0',
    '0.00',
    '00',
    'NaN',
    'Infinity',
    '-Infinity',
    '٣',
    '１２',
    '1．5',
    '१',
    '1.234',
    '10.001',
    '12345678901234567890',
    '9999999999999999',
    '90071992547409.92',
    '999999999999999.99',
    '',
    ' ',
    'ten',
    '1.2.3',
    '--1',
    '1-1',
    '$1',
    '1€',
    'null',
    'true',
    '\u00001',
    '1\u0000',
    '\u200b1',
    '1\u00a0',
    '1.0e1',
    '0.001',
    '1/2',
  ])('%j is refused', async (amount) => {
    await expectRefused(newCharge({ amount }), '/amount');
  });

  it.each([['1'], [1], 10, 10.5, 0, -1, true, false, null, [], {}, { amount: '1.00' }])(
    'the JSON value %j is refused',
    async (amount) => {
      await expectRefused(newCharge({ amount }), '/amount');
    },
  );

  it.each(['1e400', '1e21', '1e999', '-0', '1E+2', '0.1e1', '9007199254740993'])(
    'the JSON number %s is refused',
    async (number) => {
      const text = JSON.stringify(newCharge({ amount: 'NUMBER' })).replace('"NUMBER"', number);
      const answer = await send({ body: text });
      expect(answer.status).toBe(400);
      expect(['validation_failed', 'malformed_body']).toContain((JSON.parse(answer.body) as { code: string }).code);
    },
  );

  it.each([
    ['JPY', '500.50'],
    ['JPY', '500.0'],
    ['JPY', '500.'],
    ['EUR', '5.555'],
    ['KWD', '1.2345'],
    ['CLF', '1.23456'],
    ['HUF', '1.005'],
    ['KWD', '9007199254740.992'],
    ['JPY', '9007199254740992'],
  ])('%s does not take %s', async (currency, amount) => {
    await expectRefused(newCharge({ currency, amount }), '/amount');
  });

  it('is required', async () => {
    const { amount: _amount, ...body } = newCharge();
    await expectRefused(body, '/amount');
  });
});

describe('currencies', () => {
  it.each([
    'XYZ',
    'usd',
    'Usd',
    'USD ',
    ' USD',
    'US',
    'USDT',
    '',
    '840',
    'XXX',
    'XTS',
    'XAU',
    'ＥＵＲ',
    'EUR\u0000',
    '$',
    'EÜR',
  ])('%j is refused', async (currency) => {
    await expectRefused(newCharge({ currency }), '/currency');
  });
  it.each([1, null, ['EUR'], {}, true])('%j is refused', async (currency) => {
    await expectRefused(newCharge({ currency }), '/currency');
  });
});

describe('texts', () => {
  const long = (length: number) => 'x'.repeat(length);
  it.each([
    ['customer_id', ''],
    ['customer_id', long(65)],
    ['customer_id', 5],
    ['customer_id', null],
    ['external_payment_id', ''],
    ['external_payment_id', long(129)],
    ['external_payment_id', ' a'],
    ['external_payment_id', 'a '],
    ['external_payment_id', 'é'],
    ['external_payment_id', 'a\tb'],
    ['external_payment_id', 'a\nb'],
    ['external_payment_id', ['a']],
    ['provider', 'paypal'],
    ['provider', 'Sandbox'],
    ['provider', 'sandbox '],
    ['provider', '__proto__'],
    ['provider', 'constructor'],
    ['provider', ''],
    ['provider', null],
    ['payment_method', ''],
    ['payment_method', long(256)],
    ['payment_method', 'pm_é'],
    ['payment_method', null],
    ['capture', 'Manual'],
    ['capture', ''],
    ['capture', null],
    ['capture', true],
    ['order_id', ''],
    ['order_id', long(129)],
    ['description', long(501)],
    ['description', '🙂'.repeat(501)],
    ['description', null],
    ['return_url', 'javascript:alert(1)'],
    ['return_url', 'data:text/html,x'],
    ['return_url', '/relative'],
    ['return_url', '//shop.example'],
    ['return_url', 'ftp://shop.example'],
    ['return_url', 'https://shop.example/ä'],
    ['return_url', 'https://shop.example/a b'],
    ['return_url', 'https:// '],
    ['return_url', `https://shop.example/${long(2048)}`],
    ['return_url', null],
  ])('%s: %j is refused', async (field, value) => {
    await expectRefused(newCharge({ [field]: value }), `/${field}`);
  });

  it.each(['customer_id', 'external_payment_id', 'payment_method', 'order_id', 'description'])(
    '%s: U+0000 and half a surrogate pair are refused, spelled as escapes too',
    async (field) => {
      const text = JSON.stringify(newCharge({ [field]: 'HERE' }));
      for (const escape of ['a\\u0000b', '\\ud800', 'a\\udc00', '\\ud800\\ud800', '\\udc00\\ud800']) {
        const answer = await send({ body: text.replace('HERE', escape) });
        const { errors } = expectProblem(answer, 400, 'validation_failed');
        expect(errors).toMatchObject([{ path: `/${field}` }]);
      }
    },
  );
});

describe('metadata', () => {
  const pairs = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`k${n}`, 'v']));
  it.each([
    ['51 pairs', pairs(51), '/metadata'],
    ['1,000 pairs', pairs(1000), '/metadata'],
    ['an object inside', { a: { b: '1' } }, '/metadata/a'],
    ['a list inside', { a: ['1'] }, '/metadata/a'],
    ['a number', { a: 1 }, '/metadata/a'],
    ['null', { a: null }, '/metadata/a'],
    ['true', { a: true }, '/metadata/a'],
    ['a list', ['a'], '/metadata'],
    ['a text', 'a', '/metadata'],
    ['null itself', null, '/metadata'],
    ['an empty name', { '': 'x' }, '/metadata/'],
    ['a name of 41 characters', { ['n'.repeat(41)]: 'x' }, `/metadata/${'n'.repeat(41)}`],
    ['a value of 501 characters', { a: 'x'.repeat(501) }, '/metadata/a'],
    ['U+0000 in a value', { a: '\u0000' }, '/metadata/a'],
    ['U+0000 in a name', { 'a\u0000': 'x' }, '/metadata/a\ufffd'],
    ['half a surrogate pair in a value', { a: '\ud800' }, '/metadata/a'],
  ])('%s', async (_name, metadata, path) => {
    await expectRefused(newCharge({ metadata }), path);
  });

  it('a member called __proto__', async () => {
    const text = JSON.stringify(newCharge({ metadata: { a: '1' } })).replace('"a":"1"', '"__proto__":"1"');
    expectProblem(await send({ body: text }), 400, 'validation_failed');
  });
});

describe('card numbers', () => {
  it.each([
    '4242424242424242',
    '4242 4242 4242 4242',
    '4242-4242-4242-4242',
    'card 4242424242424242 of Anna',
    '378282246310005',
    '2200000000000004',
  ])('%j is refused as payment method, in the description and in metadata, and not repeated', async (text) => {
    for (const [field, value] of [
      ['payment_method', text],
      ['description', text],
      ['metadata', { note: text }],
    ] as const) {
      const answer = await send({ body: JSON.stringify(newCharge({ [field]: value })) });
      expectProblem(answer, 400, 'card_number_rejected');
      expect(answer.body).not.toContain(text);
    }
    const named = await send({ body: JSON.stringify(newCharge({ metadata: { [text.slice(0, 40)]: 'x' } })) });
    expectProblem(named, 400, 'card_number_rejected');
    expect(named.body).not.toContain(text);
    expect(JSON.stringify(system.first.log)).not.toContain(text);
  });
});

describe('fields', () => {
  it.each([
    ['amont', { amont: '1.00' }, '/amont'],
    ['Amount', { Amount: '1.00' }, '/Amount'],
    ['status', { status: 'succeeded' }, '/status'],
    ['id', { id: randomUUID() }, '/id'],
    ['idempotency_key', { idempotency_key: 'x' }, '/idempotency_key'],
    ['constructor', { constructor: {} }, '/constructor'],
    ['toString', { toString: 'x' }, '/toString'],
  ])('%s is unknown', async (_name, more, path) => {
    await expectRefused(newCharge(more), path);
  });

  it('__proto__ is unknown, and changes nothing', async () => {
    const text = JSON.stringify(newCharge()).replace('{', '{"__proto__":{"amount":"1.00"},');
    expectProblem(await send({ body: text }), 400, 'validation_failed');
    expect(({} as { amount?: string }).amount).toBeUndefined();
  });

  it('all that is wrong is told at once', async () => {
    const answer = await send({ body: JSON.stringify({ amount: '0', currency: 'EUR', customer_id: '', x: 1 }) });
    const { errors } = expectProblem(answer, 400, 'validation_failed');
    expect((errors as { path: string }[]).map(({ path }) => path).sort()).toEqual([
      '/amount',
      '/customer_id',
      '/external_payment_id',
      '/x',
    ]);
  });

  it.each(['?dry_run=true', '?amount=1', '?a=1&a=2'])('the query %s is unknown', async (query) => {
    expectProblem(await send({ path: `/payments${query}` }), 400, 'validation_failed');
  });
});

describe('bodies', () => {
  const charge = JSON.stringify(newCharge());
  it.each([
    ['nothing', '', 'validation_failed'],
    ['null', 'null', 'validation_failed'],
    ['a list', `[${charge}]`, 'validation_failed'],
    ['a text', '"x"', 'validation_failed'],
    ['a number', '1', 'validation_failed'],
    ['a broken object', charge.slice(0, -1), 'malformed_body'],
    ['two objects', charge + charge, 'malformed_body'],
    ['a trailing comma', charge.replace(/}$/, ',}'), 'malformed_body'],
    ['a comment', `/* */${charge}`, 'malformed_body'],
    ['single quotes', charge.replaceAll('"', "'"), 'malformed_body'],
    ['NaN', charge.replace('"10.00"', 'NaN'), 'malformed_body'],
    ['a raw line end in a text', charge.replace('customer-1', 'a\nb'), 'malformed_body'],
    ['a byte order mark', `\ufeff${charge}`, 'malformed_body'],
    ['blanks', '  \n ', 'malformed_body'],
    ['a member twice', charge.replace('{', '{"amount":"1.00",'), 'malformed_body'],
    ['a member twice, spelled otherwise', charge.replace('{', '{"\\u0061mount":"1.00",'), 'malformed_body'],
    ['a member of metadata twice', charge.replace('{', '{"metadata":{"a":"1","a":"2"},'), 'malformed_body'],
    ['17 levels', charge.replace('{', `{"metadata":${'{"a":'.repeat(16)}1${'}'.repeat(16)},`), 'malformed_body'],
    ['10,000 levels', '['.repeat(10_000), 'malformed_body'],
  ])('%s', async (_name, body, code) => {
    expectProblem(await send({ body }), 400, code);
  });

  it.each([
    ['a stray byte', Buffer.from([0x22, 0xff, 0x22])],
    ['an overlong form', Buffer.from([0x22, 0xc0, 0x80, 0x22])],
    ['half a surrogate pair', Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22])],
    ['a cut character', Buffer.from([0x22, 0xe2, 0x82, 0x22])],
    ['UTF-16', Buffer.from(charge, 'utf16le')],
    ['Latin-1', Buffer.from(charge.replace('customer-1', 'ü'), 'latin1')],
  ])('bytes that are no UTF-8: %s', async (_name, body) => {
    expectProblem(await send({ body }), 400, 'malformed_body');
  });

  it.each([
    ['no content type', { without: ['content-type'] }],
    ['text/plain', { headers: ['Content-Type: text/plain'] }],
    ['a form', { headers: ['Content-Type: application/x-www-form-urlencoded'] }],
    ['multipart', { headers: ['Content-Type: multipart/form-data; boundary=x'] }],
    ['application/jsonp', { headers: ['Content-Type: application/jsonp'] }],
    ['application/problem+json', { headers: ['Content-Type: application/problem+json'] }],
    ['ISO-8859-1', { headers: ['Content-Type: application/json; charset=iso-8859-1'] }],
    ['UTF-16', { headers: ['Content-Type: application/json; charset=utf-16'] }],
    ['two types', { headers: ['Content-Type: application/json', 'Content-Type: text/plain'] }],
    ['gzip', { headers: ['Content-Encoding: gzip'] }],
    ['br', { headers: ['Content-Encoding: br'] }],
    ['identity', { headers: ['Content-Encoding: identity'] }],
  ] satisfies [string, Raw][])('type or encoding: %s is 415', async (_name, raw) => {
    expectProblem(await send(raw), 415, 'unsupported_media_type');
  });

  it.each([65 * 1024, 1024 * 1024 + 1])('of %i bytes are 413', async (length) => {
    const body = JSON.stringify(newCharge({ description: 'x'.repeat(length) }));
    expectProblem(await send({ body }), 413, 'body_too_large');
  });

  it('of 65 KB in chunks are 413', async () => {
    const connection = await RawConnection.open(system.first.url);
    const lines = [
      'POST /payments HTTP/1.1',
      'Host: x',
      `Authorization: Bearer ${system.api_key}`,
      'Idempotency-Key: chunked',
      'Content-Type: application/json',
      'Transfer-Encoding: chunked',
    ];
    const text = JSON.stringify(newCharge({ description: 'x'.repeat(66_000) }));
    connection.write(`${lines.join('\r\n')}\r\n\r\n${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`);
    expectProblem(await connection.answer(), 413, 'body_too_large');
    connection.destroy();
  });
});

describe('idempotency keys', () => {
  it('none is told apart from a wrong one', async () => {
    expectProblem(await send({ without: ['idempotency-key'] }), 400, 'idempotency_key_missing');
  });

  const latin1 = (text: string) => Buffer.from(text, 'utf8').toString('latin1');
  it.each([
    ['empty', ['Idempotency-Key: ']],
    ['blank', ['Idempotency-Key:    ']],
    ['an empty string', ['Idempotency-Key: ""']],
    ['a blank string', ['Idempotency-Key: "  "']],
    ['256 characters', [`Idempotency-Key: ${'k'.repeat(256)}`]],
    ['256 characters in quotes', [`Idempotency-Key: "${'k'.repeat(256)}"`]],
    ['10,000 characters', [`Idempotency-Key: ${'k'.repeat(10_000)}`]],
    ['a space at the front, in quotes', ['Idempotency-Key: " a"']],
    ['a space at the end, in quotes', ['Idempotency-Key: "a "']],
    ['é', [`Idempotency-Key: ${latin1('é')}`]],
    ['é in Latin-1', ['Idempotency-Key: \xe9']],
    ['an emoji', [`Idempotency-Key: ${latin1('🔑')}`]],
    ['a tab inside', ['Idempotency-Key: a\tb']],
    ['an opening quote', ['Idempotency-Key: "abc']],
    ['a closing quote', ['Idempotency-Key: abc"']],
    ['a quote inside', ['Idempotency-Key: a"b']],
    ['a quote inside quotes', ['Idempotency-Key: "a"b"']],
    ['a lone quote', ['Idempotency-Key: "']],
    ['a parameter', ['Idempotency-Key: "abc"; v=1']],
    ['a list', ['Idempotency-Key: "a", "b"']],
    ['two lines', ['Idempotency-Key: a', 'Idempotency-Key: b']],
    ['two equal lines', ['Idempotency-Key: a', 'idempotency-key: a']],
    ['two lines, one empty', ['Idempotency-Key: a', 'Idempotency-Key: ']],
  ])('%s is refused', async (_name, headers) => {
    expectProblem(await send({ headers }), 400, 'idempotency_key_invalid');
  });

  it.each([
    ['NUL', 'a\x00b'],
    ['a bare carriage return', 'a\rb'],
    ['DEL', 'a\x7fb'],
  ])('%s is no header at all', async (_name, key) => {
    const answer = await send({ headers: [`Idempotency-Key: ${key}`] });
    expect(answer.status).toBe(400);
  });

  it('the body is looked at after the key, and the key after the body was read', async () => {
    expectProblem(await send({ headers: ['Idempotency-Key: "'], body: '{"x":1}' }), 400, 'idempotency_key_invalid');
    expectProblem(await send({ headers: ['Idempotency-Key: "'], body: '{"x":' }), 400, 'malformed_body');
  });
});

describe('API keys', () => {
  it.each([
    ['none', { without: ['authorization'] }],
    ['empty', { headers: ['Authorization: '] }],
    ['no scheme', { headers: ['Authorization: oncepay_sk_x'] }],
    ['Basic', { headers: ['Authorization: Basic b25jZTpwYXk='] }],
    ['Bearer alone', { headers: ['Authorization: Bearer'] }],
    ['one character', { headers: ['Authorization: Bearer x'] }],
    ['15 characters', { headers: [`Authorization: Bearer ${'x'.repeat(15)}`] }],
    ['16 unknown ones', { headers: [`Authorization: Bearer ${'x'.repeat(16)}`] }],
    ['257 characters', { headers: [`Authorization: Bearer ${'x'.repeat(257)}`] }],
    ['10,000 characters', { headers: [`Authorization: Bearer ${'x'.repeat(10_000)}`] }],
    [
      'another alphabet',
      { headers: ['Authorization: Bearer \xfc\xfc\xfc\xfc\xfc\xfc\xfc\xfc\xfc\xfc\xfc\xfc\xfc\xfc\xfc\xfc'] },
    ],
    ['two words', { headers: ['Authorization: Bearer a b'] }],
  ] satisfies [string, Raw][])('%s is 401', async (_name, raw) => {
    const answer = await send(raw);
    expectProblem(answer, 401, 'unauthenticated');
    expect(answer.headers['www-authenticate']).toContain('Bearer');
  });

  it('a known one with a character more, less or other, or sent twice, is 401', async () => {
    const { api_key } = system;
    for (const wrong of [`${api_key}x`, api_key.slice(0, -1), api_key.toUpperCase(), `x${api_key.slice(1)}`]) {
      expectProblem(await send({ headers: [`Authorization: Bearer ${wrong}`] }), 401, 'unauthenticated');
    }
    const twice = [`Authorization: Bearer ${api_key}`, `Authorization: Bearer ${api_key}`];
    expectProblem(await send({ headers: twice }), 401, 'unauthenticated');
  });

  it('is looked at before the body, its type and the key', async () => {
    const raw = { headers: ['Authorization: Bearer x', 'Content-Type: text/plain', 'Idempotency-Key: "'], body: '{' };
    expectProblem(await send(raw), 401, 'unauthenticated');
  });

  it('without the scope is 403, before the body', async () => {
    const reader = await system.client(`reader-${randomUUID()}`, ['payments:read']);
    const raw = { headers: [`Authorization: Bearer ${reader}`, 'Content-Type: text/plain'], body: '{' };
    expectProblem(await send(raw), 403, 'forbidden');
  });
});

describe('addresses, methods and headers', () => {
  it.each(['GET', 'PUT', 'PATCH', 'DELETE'])('%s /payments/… with a method that it does not have', async (method) => {
    const path = method === 'GET' ? `/payments/${randomUUID()}/capture` : '/payments';
    const answer = await send({ method, path });
    expectProblem(answer, 405, 'method_not_allowed');
    expect(answer.headers.allow).toContain('POST');
  });

  it.each([
    ['GET', '/payments/x/nothing', 404, 'not_found'],
    ['POST', '/payment', 404, 'not_found'],
    ['GET', '/payments/', 404, 'not_found'],
    ['POST', '/payments/', 405, 'method_not_allowed'],
    ['POST', '//payments', 404, 'not_found'],
    ['POST', '/PAYMENTS', 404, 'not_found'],
    ['POST', '/payments/../payments', 404, 'not_found'],
    ['GET', `/payments/${'x'.repeat(3000)}`, 414, 'uri_too_long'],
    ['GET', '/payments/%zz', 400, 'validation_failed'],
    ['GET', '/payments/%ff', 400, 'validation_failed'],
  ])('%s %s is %i', async (method, path, status, code) => {
    expectProblem(await send({ method, path }), status, code);
  });

  it('17 KB of headers are 431', async () => {
    expectProblem(await send({ headers: [`X-Large: ${'x'.repeat(17 * 1024)}`] }), 431, 'headers_too_large');
  });

  it.each(['wait=abc', 'wait=-1', 'wait=1e9', 'wait=', 'wait=9999999999', 'wait', 'return=minimal', '\xff'])(
    'the preference %j is ignored: what is wrong stays wrong',
    async (preference) => {
      const raw = { headers: [`Prefer: ${preference}`], body: JSON.stringify(newCharge({ amount: '0' })) };
      expectProblem(await send(raw), 400, 'validation_failed');
    },
  );
});
