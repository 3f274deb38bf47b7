import { hash, randomBytes } from 'node:crypto';

/** Secret scanners find keys by it. */
const API_KEY_PREFIX = 'oncepay_sk_';
const RANDOM_BYTES = 32;
const HINT_LENGTH = API_KEY_PREFIX.length + 6;

export interface NewApiKey {
  /** The key itself: shown once, kept nowhere. */
  readonly key: string;
  readonly hash: Buffer;
  /** Its first characters, by which people recognise it. */
  readonly hint: string;
}

/** A key with 256 random bits: the prefix and 43 characters of base64url. */
export function generateApiKey(): NewApiKey {
  return describeApiKey(API_KEY_PREFIX + randomBytes(RANDOM_BYTES).toString('base64url'));
}

/**
 * What is stored of a key. A plain SHA-256 is enough for 256 random bits: there is nothing to guess, so nothing that
 * a slow hash would slow down. A short hint is left out where the key is short, so that no key is half told.
 */
export function describeApiKey(key: string): NewApiKey {
  const shown = key.startsWith(API_KEY_PREFIX) ? HINT_LENGTH : Math.min(6, Math.floor(key.length / 4));
  return { key, hash: hashApiKey(key), hint: key.slice(0, shown) };
}

export function hashApiKey(key: string): Buffer {
  return Buffer.from(apiKeyHashName(key), 'base64');
}

/** The same in base64: what a key is looked up by in memory, at every request. */
export function apiKeyHashName(key: string): string {
  return hash('sha256', key, 'base64');
}

/** 16 to 256 printable ASCII characters without a space. Anything else was never given out as a key. */
export function isWellFormedApiKey(text: string): boolean {
  return /^[\x21-\x7e]{16,256}$/.test(text);
}
