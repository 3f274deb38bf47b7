import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OncepayError } from '../../../src/domain/errors.js';
import { parseIdempotencyKey, readIdempotencyKey } from '../../../src/http/idempotency-key.js';

function codeOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof OncepayError) return error.code;
    throw error;
  }
  return 'accepted';
}

const printable = fc.string({
  unit: fc.integer({ min: 0x20, max: 0x7e }).map((code) => String.fromCharCode(code)),
  minLength: 1,
  maxLength: 255,
});
const validKey = printable.filter((key) => key.trim() === key);
const bareKey = validKey.filter((key) => !key.includes('"'));

describe('readIdempotencyKey', () => {
  it('finds the header among others, whatever the case of its name', () => {
    const headers = ['Host', 'localhost', 'iDEMPOTENCY-kEY', 'Abc', 'Accept', '*/*'];
    expect(readIdempotencyKey(headers)).toBe('Abc');
  });

  it('keeps the case of the value', () => {
    expect(readIdempotencyKey(['Idempotency-Key', 'abc'])).not.toBe(readIdempotencyKey(['Idempotency-Key', 'ABC']));
  });

  it('does not take a value for a name', () => {
    expect(codeOf(() => readIdempotencyKey(['X-Header', 'Idempotency-Key', 'Accept', 'x']))).toBe(
      'idempotency_key_missing',
    );
  });

  it.each([
    ['no headers', []],
    ['another name', ['Idempotency-Keys', 'a', 'X-Idempotency-Key', 'b', 'Idempotency_Key', 'c']],
  ])('calls it missing with %s', (_name, headers) => {
    expect(codeOf(() => readIdempotencyKey(headers))).toBe('idempotency_key_missing');
  });

  it.each([
    ['two lines', ['Idempotency-Key', 'a', 'Idempotency-Key', 'b']],
    ['the same line twice', ['Idempotency-Key', 'a', 'Host', 'h', 'idempotency-key', 'a']],
    ['an empty line and a good one', ['Idempotency-Key', '', 'Idempotency-Key', 'a']],
    ['an empty line', ['Idempotency-Key', '']],
  ])('refuses %s', (_name, headers) => {
    expect(codeOf(() => readIdempotencyKey(headers))).toBe('idempotency_key_invalid');
  });
});

describe('parseIdempotencyKey', () => {
  it.each([
    ['abc', 'abc'],
    ['"abc"', 'abc'],
    ['a b', 'a b'],
    ['a, b', 'a, b'],
    ['../x', '../x'],
    ['%00', '%00'],
    ['a\\b', 'a\\b'],
    ['"a\\\\b"', 'a\\b'],
    ['"a\\"b"', 'a"b'],
    ['"\\""', '"'],
    ["'abc'", "'abc'"],
    ['x'.repeat(255), 'x'.repeat(255)],
    [`"${'x'.repeat(255)}"`, 'x'.repeat(255)],
    [`"${'\\"'.repeat(255)}"`, '"'.repeat(255)],
  ])('reads %j as %j', (text, key) => {
    expect(parseIdempotencyKey(text)).toBe(key);
  });

  it.each([
    '',
    ' ',
    '   ',
    '\t',
    ' abc',
    'abc ',
    '\tabc',
    'abc\t',
    '""',
    '" "',
    '" abc"',
    '"abc "',
    '"abc',
    'abc"',
    '"',
    'a"b',
    'a"b"c',
    '"a"b"',
    '"a" ',
    '"a";p=1',
    '"a","b"',
    '"a\\"',
    '"a\\b"',
    '\\"abc\\"',
    'é',
    'clé',
    'a\u0000b',
    'a\nb',
    'a\u007fb',
    'a\u0080b',
    '€',
    'ключ',
    '１',
    'x'.repeat(256),
    `"${'x'.repeat(256)}"`,
    'x'.repeat(10_000),
  ])('refuses %j', (text) => {
    expect(codeOf(() => parseIdempotencyKey(text))).toBe('idempotency_key_invalid');
  });

  it('reads a bare key and its structured-field string as the same key', () => {
    fc.assert(
      fc.property(bareKey, (key) => {
        const quoted = `"${key.replace(/[\\"]/g, '\\$&')}"`;
        expect(parseIdempotencyKey(key)).toBe(key);
        expect(parseIdempotencyKey(quoted)).toBe(key);
      }),
    );
  });

  it('reads every key back from its quoted form, quotes inside included', () => {
    fc.assert(
      fc.property(validKey, (key) => {
        expect(parseIdempotencyKey(`"${key.replace(/[\\"]/g, '\\$&')}"`)).toBe(key);
      }),
    );
  });

  it('gives nothing but 1 to 255 printable ASCII characters without a space at either end', () => {
    const nearlyKey = fc.string({ unit: fc.constantFrom('a', '"', '\\', ' ', '\t', 'é', '\u0000') });
    fc.assert(
      fc.property(fc.oneof(nearlyKey, printable, fc.string({ unit: 'binary' })), (text) => {
        let key: string;
        try {
          key = parseIdempotencyKey(text);
        } catch (error) {
          expect((error as OncepayError).code).toBe('idempotency_key_invalid');
          return;
        }
        expect(key.length).toBeGreaterThan(0);
        expect(key.length).toBeLessThanOrEqual(255);
        expect(key.trim()).toBe(key);
        expect(Array.from(key).every((character) => character >= ' ' && character <= '~')).toBe(true);
      }),
      { numRuns: 2000 },
    );
  });

  it('takes time in proportion to the header, also for hostile ones', () => {
    const hostile = ['"', '\\', '"\\', ' ', 'a '].map((part) => `"${part.repeat(16_000 / part.length)}`);
    const started = performance.now();
    for (const text of hostile) codeOf(() => parseIdempotencyKey(text));
    expect(performance.now() - started).toBeLessThan(1000);
  });
});
