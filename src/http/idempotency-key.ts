import { OncepayError } from '../domain/errors.js';

export const MAX_KEY_LENGTH = 255;

const HEADER = 'idempotency-key';
/** Printable ASCII, no space at either end. */
const KEY = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/;
/** A string of RFC 8941: quotes around, `\"` and `\\` the only escapes. */
const QUOTED = /^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"$/;

/**
 * The idempotency key of a request, from its raw header lines (`request.raw.rawHeaders`: name, value, name, value …).
 * Not from the parsed headers: Node joins two lines of one name with ", ", which would make a third key of two.
 * @throws OncepayError idempotency_key_missing, or idempotency_key_invalid for two lines and for what is no key
 */
export function readIdempotencyKey(rawHeaders: readonly string[]): string {
  let line: string | undefined;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i];
    if (name?.length !== HEADER.length || name.toLowerCase() !== HEADER) continue;
    if (line !== undefined) throw invalid('There are several Idempotency-Key header lines; send exactly one.');
    line = rawHeaders[i + 1];
  }
  if (line === undefined) {
    throw new OncepayError(
      'idempotency_key_missing',
      'This request moves money, so it needs an Idempotency-Key header: one key per intent, kept over all retries (a UUID is fine).',
    );
  }
  return parseIdempotencyKey(line);
}

/**
 * Reads one key: 1–255 characters of printable ASCII without a space at either end, bare (`abc`) or as a structured
 * field's string (`"abc"`, the same key). A quote anywhere else is refused: whether it was meant to be part of the
 * key can't be known, and a guess would make two keys of one.
 * @throws OncepayError idempotency_key_invalid
 */
export function parseIdempotencyKey(text: string): string {
  if (text === '') throw invalid('The Idempotency-Key is empty.');
  const inner = unquoted(text);
  if (inner === null && text.includes('"')) {
    throw invalid(
      'The Idempotency-Key has a quote that is not a pair around the whole key; send it bare, or as "key" with \\" and \\\\ inside.',
    );
  }
  const key = inner ?? text;
  if (key.length > MAX_KEY_LENGTH) throw invalid(`The Idempotency-Key has more than ${MAX_KEY_LENGTH} characters.`);
  if (!KEY.test(key)) {
    throw invalid('The Idempotency-Key must be 1 to 255 characters of printable ASCII, with no space at either end.');
  }
  return key;
}

/** What a structured field's string says: `abc` for `"abc"`; null for what is none. */
export function unquoted(text: string): string | null {
  return QUOTED.exec(text)?.[1]?.replace(/\\(["\\])/g, '$1') ?? null;
}

function invalid(detail: string): OncepayError {
  return new OncepayError('idempotency_key_invalid', detail);
}
