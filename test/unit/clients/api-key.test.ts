import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { describeApiKey, generateApiKey, hashApiKey, isWellFormedApiKey } from '../../../src/clients/api-key.js';
import { allows } from '../../../src/clients/scopes.js';

describe('API keys', () => {
  it('have the prefix that scanners find and 256 random bits', () => {
    const keys = new Set(Array.from({ length: 100 }, () => generateApiKey().key));
    expect(keys.size).toBe(100);
    for (const key of keys) {
      expect(key).toMatch(/^oncepay_sk_[\w-]{43}$/);
      expect(isWellFormedApiKey(key)).toBe(true);
    }
  });

  it('are stored as their SHA-256 and a hint that gives nothing away', () => {
    const { key, hash, hint } = generateApiKey();
    expect(hash.equals(createHash('sha256').update(key).digest())).toBe(true);
    expect(hashApiKey(key)).toEqual(hash);
    expect(key.startsWith(hint)).toBe(true);
    expect(hint).toHaveLength('oncepay_sk_'.length + 6);
  });

  it('that people chose show a quarter at most', () => {
    expect(describeApiKey('0123456789abcdef').hint).toBe('0123');
    expect(describeApiKey('x'.repeat(100)).hint).toBe('xxxxxx');
  });

  it.each([
    ['x'.repeat(16), true],
    ['x'.repeat(256), true],
    ['x'.repeat(15), false],
    ['x'.repeat(257), false],
    ['', false],
    ['sixteen or more with spaces', false],
    ['ключключключключ', false],
    [`${'x'.repeat(20)}\n`, false],
    ['x'.repeat(20) + '\0', false],
  ])('%j is well formed: %s', (text, expected) => {
    expect(isWellFormedApiKey(text)).toBe(expected);
  });
});

describe('scopes', () => {
  it('allow what they name; admin also reads', () => {
    expect(allows(['payments:read'], 'payments:read')).toBe(true);
    expect(allows(['payments:write'], 'payments:read')).toBe(false);
    expect(allows(['admin'], 'payments:read')).toBe(true);
    expect(allows(['admin'], 'payments:write')).toBe(false);
    expect(allows(['admin'], 'commands')).toBe(false);
    expect(allows([], 'payments:read')).toBe(false);
  });
});
