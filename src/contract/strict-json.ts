import { isUtf8 } from 'node:buffer';
import { printParseErrorCode, visit } from 'jsonc-parser';
import { jsonPointer } from './text.js';
import { type FieldError, OncepayError } from '../domain/errors.js';

export const MAX_JSON_DEPTH = 16;

const QUOTE = 0x22;
const COLON = 0x3a;
const OPENING_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSING_BRACKET = 0x5d;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;

/**
 * Reads the bytes of a JSON body so that two readers can't understand it differently: valid UTF-8 without a byte
 * order mark, nothing but JSON, no member name twice in an object (compared after unescaping), at most
 * `MAX_JSON_DEPTH` levels. What the value is (an object, …) is left to validation.
 * @returns the value; undefined for an empty body
 * @throws OncepayError malformed_body
 */
export function parseStrictJson(bytes: Buffer): unknown {
  if (bytes.length === 0) return undefined;
  if (!isUtf8(bytes)) throw malformed('The body is not valid UTF-8.');
  const written = scan(bytes);
  const text = bytes.toString('utf8');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return throwSyntaxError(text); // JSON.parse's own message repeats a piece of the body
  }
  // Of a name that is there twice only one member is left (and of what was inside the other, nothing).
  if (countMembers(value) !== written) throwDuplicateMember(text);
  return value;
}

/** One pass over the bytes: how many members are written, and that nothing is nested too deeply for the rest. */
function scan(bytes: Buffer): number {
  let members = 0;
  let depth = 0;
  let inString = false;
  for (let i = 0; i < bytes.length; i += 1) {
    const byte = bytes[i];
    if (inString) {
      if (byte === BACKSLASH) i += 1;
      else if (byte === QUOTE) inString = false;
    } else if (byte === QUOTE) {
      inString = true;
    } else if (byte === COLON) {
      members += 1;
    } else if (byte === OPENING_BRACE || byte === OPENING_BRACKET) {
      depth += 1;
      if (depth > MAX_JSON_DEPTH) throw malformed(`The body is nested more than ${MAX_JSON_DEPTH} levels deep.`);
    } else if (byte === CLOSING_BRACE || byte === CLOSING_BRACKET) {
      depth -= 1;
    }
  }
  return members;
}

function countMembers(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const members: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
  let count = Array.isArray(value) ? 0 : members.length;
  for (const member of members) count += countMembers(member);
  return count;
}

/** Says where the text stops being JSON. Ends at the first error: what follows may be nested without limit. */
function throwSyntaxError(text: string): never {
  if (text.startsWith('\ufeff')) throw malformed('The body begins with a byte order mark (U+FEFF); JSON has none.');
  if (text.trim() === '') throw malformed('The body is blank; send JSON.');
  visit(
    text,
    {
      onError: (error, _offset, _length, line, character) => {
        const place = `line ${line + 1}, column ${character + 1}`;
        throw malformed(`The body is not valid JSON at ${place} (${printParseErrorCode(error)}).`);
      },
    },
    { disallowComments: true },
  );
  throw malformed('The body is not valid JSON.');
}

function throwDuplicateMember(text: string): never {
  const objects: Set<string>[] = [];
  visit(text, {
    onObjectBegin: () => {
      objects.push(new Set());
    },
    onObjectEnd: () => {
      objects.pop();
    },
    onObjectProperty: (name, _offset, _length, _line, _character, pathOfObject) => {
      const names = objects.at(-1);
      if (names?.has(name) === true) throw duplicate(jsonPointer([...pathOfObject(), name]));
      names?.add(name);
    },
  });
  throw duplicate('');
}

function duplicate(path: string): OncepayError {
  return malformed('The body has a member name twice in one object; which of the two is meant cannot be known.', [
    { path, message: 'is there more than once' },
  ]);
}

function malformed(detail: string, errors?: readonly FieldError[]): OncepayError {
  return new OncepayError('malformed_body', detail, errors === undefined ? {} : { errors });
}
