import { isUtf8 } from 'node:buffer';
import { printParseErrorCode, visit } from 'jsonc-parser';
import { jsonPointer } from '../contract/text.js';
import { OncepayError } from '../domain/errors.js';

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
    throw malformed(syntaxError(text)); // JSON.parse's own message repeats a piece of the body
  }
  // Of a name that is there twice only one member is left (and of what was inside the other, nothing).
  if (countMembers(value) !== written) throw duplicateMember(text);
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

function syntaxError(text: string): string {
  if (text.startsWith('\ufeff')) return 'The body begins with a byte order mark (U+FEFF); JSON has none.';
  if (text.trim() === '') return 'The body is blank; send JSON.';
  let found: string | null = null;
  visit(
    text,
    {
      onError: (error, _offset, _length, line, character) => {
        found ??= ` at line ${line + 1}, column ${character + 1} (${printParseErrorCode(error)})`;
      },
    },
    { disallowComments: true },
  );
  return `The body is not valid JSON${found ?? ''}.`;
}

function duplicateMember(text: string): OncepayError {
  const objects: Set<string>[] = [];
  let path: string | null = null;
  visit(text, {
    onObjectBegin: () => {
      objects.push(new Set());
    },
    onObjectEnd: () => {
      objects.pop();
    },
    onObjectProperty: (name, _offset, _length, _line, _character, pathOfObject) => {
      const names = objects.at(-1);
      if (names?.has(name) === true) path ??= jsonPointer([...pathOfObject(), name]);
      names?.add(name);
    },
  });
  return malformed("The body has a member name twice in one object; which of the two is meant can't be known.", path);
}

function malformed(detail: string, path: string | null = null): OncepayError {
  return new OncepayError(
    'malformed_body',
    detail,
    path === null ? {} : { errors: [{ path, message: 'is there more than once' }] },
  );
}
