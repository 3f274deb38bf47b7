import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OncepayError } from '../../../src/domain/errors.js';
import { MAX_JSON_DEPTH, parseStrictJson } from '../../../src/contract/strict-json.js';

function parse(text: string): unknown {
  return parseStrictJson(Buffer.from(text, 'utf8'));
}

function refusal(body: string | Buffer): OncepayError {
  try {
    parseStrictJson(typeof body === 'string' ? Buffer.from(body, 'utf8') : body);
  } catch (error) {
    if (error instanceof OncepayError) return error;
    throw error;
  }
  throw new Error('was accepted');
}

function nested(depth: number): string {
  return `${'['.repeat(depth)}${']'.repeat(depth)}`;
}

/** An object's members as a list, so that names can be there twice; written with random white space and escapes. */
type Written = { readonly text: string; readonly hasDuplicate: boolean };
const space = fc.constantFrom('', ' ', '\n', '\t ', '\r\n');
const literal = fc
  .oneof(
    fc.string({ unit: 'grapheme' }),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.boolean(),
    fc.constant(null),
    fc.constantFrom('a:b', '{', '"', '\\', '[{"a":1}]'),
  )
  .map((value): Written => ({ text: JSON.stringify(value), hasDuplicate: false }));
const name = fc
  .constantFrom('a', 'b', 'é', '__proto__', '"', '', ':', '{')
  .chain((text) => fc.boolean().map((escape) => ({ text, escape })));

function writeName({ text, escape }: { text: string; escape: boolean }): string {
  if (!escape) return JSON.stringify(text);
  return `"${Array.from(text)
    .map((character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('')}"`;
}

const { value: written } = fc.letrec<{ value: Written }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    literal,
    fc.tuple(fc.array(tie('value'), { maxLength: 3 }), space).map(([items, gap]): Written => ({
      text: `[${gap}${items.map(({ text }) => text).join(`${gap},`)}${gap}]`,
      hasDuplicate: items.some(({ hasDuplicate }) => hasDuplicate),
    })),
    fc.tuple(fc.array(fc.tuple(name, tie('value')), { maxLength: 4 }), space).map(([members, gap]): Written => ({
      text: `{${gap}${members.map(([key, { text }]) => `${writeName(key)}${gap}:${gap}${text}`).join(`${gap},${gap}`)}${gap}}`,
      hasDuplicate:
        new Set(members.map(([key]) => key.text)).size < members.length ||
        members.some(([, { hasDuplicate }]) => hasDuplicate),
    })),
  ),
}));

describe('parseStrictJson', () => {
  it('reads what JSON.parse reads, except for names that are there twice', () => {
    fc.assert(
      fc.property(written, ({ text, hasDuplicate }) => {
        if (hasDuplicate) expect(refusal(text).extra.errors).toMatchObject([{ message: 'is there more than once' }]);
        else expect(parse(text)).toEqual(JSON.parse(text));
      }),
      { numRuns: 2000 },
    );
  });

  it('refuses what JSON.parse refuses, whatever the bytes', () => {
    const nearlyJson = fc
      .string({ unit: fc.constantFrom(...Array.from('{}[]:,"\\ \n0123eE+-.tfnu/*\'')) })
      .map((text) => Buffer.from(text));
    const bytes = fc.oneof(
      nearlyJson,
      fc.uint8Array({ minLength: 1 }).map((array) => Buffer.from(array)),
    );
    fc.assert(
      fc.property(bytes, (body) => {
        fc.pre(body.length > 0);
        let expected: unknown;
        try {
          expected = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body));
        } catch {
          expect(refusal(body).code).toBe('malformed_body');
          return;
        }
        try {
          expect(parseStrictJson(body)).toEqual(expected);
        } catch (error) {
          // The only two further reasons.
          expect((error as OncepayError).message).toMatch(/twice|nested/);
        }
      }),
      { numRuns: 3000 },
    );
  });

  it('gives undefined for an empty body, and leaves it to validation', () => {
    expect(parseStrictJson(Buffer.alloc(0))).toBeUndefined();
  });

  it.each(['null', '1', '"text"', '[]', 'true'])('leaves %s at the top to validation', (text) => {
    expect(parse(text)).toEqual(JSON.parse(text));
  });

  it.each([
    ['{"amount":"1","amount":"2"}', '/amount'],
    ['{"amount":"1","amount":"1"}', '/amount'],
    ['{"a":{"b":1},"a":{"b":1}}', '/a'],
    ['{"\\u0061mount":"1","amount":"2"}', '/amount'],
    ['{"a":[{"b":1,"b":2}]}', '/a/0/b'],
    ['{"":1,"":2}', '/'],
    ['{"__proto__":1,"__proto__":2}', '/__proto__'],
    ['{"a/b~":1,"a\\/b~":2}', '/a~1b~0'],
    ['{"x":1,"a":{"c":1,"d":{"e":1}},"a":2}', '/a'],
    ['{"4242424242424242":1,"4242424242424242":2}', ''],
  ])('refuses %s and says where', (text, path) => {
    expect(refusal(text)).toMatchObject({
      code: 'malformed_body',
      extra: { errors: [{ path, message: 'is there more than once' }] },
    });
  });

  it('tells the same name in two objects from the same name twice', () => {
    expect(parse('{"a":{"a":{"a":[{"a":1},{"a":2}]}},"b":{"a":1}}')).toBeTypeOf('object');
  });

  it('takes names of Object.prototype as ordinary members and changes no prototype', () => {
    const value = parse('{"__proto__":{"polluted":true},"constructor":1,"toString":2}') as Record<string, unknown>;
    expect(Object.keys(value)).toEqual(['__proto__', 'constructor', 'toString']);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  it(`takes ${MAX_JSON_DEPTH} levels and no more`, () => {
    expect(parse(nested(MAX_JSON_DEPTH))).toBeInstanceOf(Array);
    expect(refusal(nested(MAX_JSON_DEPTH + 1)).message).toMatch(/nested more than 16 levels/);
    expect(parse(`{"a":"${'['.repeat(100)}","b":"\\"${'{'.repeat(100)}"}`)).toBeTypeOf('object');
    expect(parse(`[${'[],'.repeat(1000)}[]]`)).toHaveLength(1001);
  });

  it.each([
    ['65,000 open brackets', '['.repeat(65_000)],
    ['65,000 open objects', '{"a":'.repeat(13_000)],
    ['brackets after a string that does not end', `["\n${'['.repeat(64_000)}`],
    ['brackets after a comment', `/* " */${'['.repeat(64_000)}`],
    ['brackets after an escaped quote outside a string', `\\"${'['.repeat(64_000)}`],
    ['a string of backslashes', `"${'\\'.repeat(64_000)}`],
    ['quotes', '"'.repeat(64_001)],
    ['white space', ' '.repeat(65_000)],
  ])('refuses %s at once', (_name, text) => {
    const started = performance.now();
    expect(refusal(text).code).toBe('malformed_body');
    expect(performance.now() - started).toBeLessThan(500);
  });

  it.each([
    ['a byte order mark', Buffer.from('\ufeff{}'), /byte order mark/],
    ['UTF-16', Buffer.from('{}', 'utf16le'), /not valid JSON/],
    ['Latin-1', Buffer.from('{"a":"é"}', 'latin1'), /not valid UTF-8/],
    ['an overlong encoding', Buffer.from([0x22, 0xc0, 0xaf, 0x22]), /not valid UTF-8/],
    ['an encoded surrogate', Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]), /not valid UTF-8/],
    ['a cut character', Buffer.from([0x22, 0xe2, 0x82, 0x22]), /not valid UTF-8/],
    ['blanks', Buffer.from(' \n'), /blank/],
    ['a comment', Buffer.from('{} // x'), /line 1, column 4/],
    ['a comma too many', Buffer.from('{\n"a":1,}'), /line 2, column 7/],
    ['single quotes', Buffer.from("{'a':1}"), /line 1, column 2/],
    ['a number with a leading zero', Buffer.from('[01]'), /not valid JSON/],
    ['NaN', Buffer.from('[NaN]'), /not valid JSON/],
    ['a raw line end in a string', Buffer.from('"a\nb"'), /not valid JSON/],
    ['two values', Buffer.from('{}{}'), /not valid JSON/],
  ])('refuses %s', (_name, body, message) => {
    expect(refusal(body).message).toMatch(message);
  });

  it('does not repeat the body in its message', () => {
    expect(refusal('{"payment_method": 4242424242424242x}').message).not.toContain('4242');
  });

  it('lets escaped lone surrogates through to validation', () => {
    expect(parse('"\\ud800"')).toBe('\ud800');
  });
});
