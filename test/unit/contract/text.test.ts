import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { jsonPointer, textProblem } from '../../../src/contract/text.js';

describe('textProblem', () => {
  const rule = { min: 2, max: 4 };

  it.each(['ab', 'abcd', '😀😀', '😀😀😀😀', 'é\u0301', ' x '])('has nothing against %j', (text) => {
    expect(textProblem(text, rule)).toBeNull();
  });

  it.each([
    ['', /2 to 4 characters/],
    ['a', /2 to 4 characters/],
    ['😀', /2 to 4 characters/],
    ['abcde', /2 to 4 characters/],
    ['😀😀😀😀a', /2 to 4 characters/],
    ['x'.repeat(1_000_000), /2 to 4 characters/],
    ['a\u0000b', /U\+0000/],
    ['a\ud83d', /surrogate/],
    ['\ude00\ud83d', /surrogate/],
  ])('names what is wrong with a text', (text, message) => {
    expect(textProblem(text, rule)).toMatch(message);
  });

  it('counts as PostgreSQL and JSON Schema do: code points', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 8 }), (text) => {
        const characters = Array.from(text).length;
        const isFine = !text.includes('\0') && characters >= 2 && characters <= 4;
        expect(textProblem(text, rule) === null).toBe(isFine);
      }),
    );
  });

  it.each(['a', 'a b', '!~', '"'])('takes the printable %j', (text) => {
    expect(textProblem(text, { min: 1, max: 9, printable_ascii: true })).toBeNull();
  });

  it.each([' a', 'a ', ' ', 'a\tb', 'a\n', '\u007f', 'é', '\u00a0'])('takes %j for not printable', (text) => {
    expect(textProblem(text, { min: 1, max: 9, printable_ascii: true })).toMatch(/printable ASCII/);
  });
});

describe('jsonPointer', () => {
  it.each([
    [[], ''],
    [['a'], '/a'],
    [[''], '/'],
    [['a', 0, 'b'], '/a/0/b'],
    [['a/b', 'c~d', '~1'], '/a~1b/c~0d/~01'],
    [['metadata', '4242 4242 4242 4242', 'x'], '/metadata'],
    [['a\u0000\nb\ud800'], '/a\ufffd\ufffdb\ufffd'],
  ])('writes %j', (path, pointer) => {
    expect(jsonPointer(path)).toBe(pointer);
  });

  it('cuts long names', () => {
    expect(jsonPointer(['x'.repeat(1000), 'y'])).toBe(`/${'x'.repeat(64)}…/y`);
  });
});
