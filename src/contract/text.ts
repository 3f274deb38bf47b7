import { containsCardNumber } from '../domain/card-number.js';

/** A code unit of a pair without its other half: no text, and no UTF-8 can carry it. */
const LONE_SURROGATE = /\p{Surrogate}/u;
/** No space at either end: two ids that look the same would not be. */
export const PRINTABLE_ASCII = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/;
/** As long as a member's name is shown in an error's path. */
const MAX_SHOWN_NAME = 64;

export interface TextRule {
  readonly min: number;
  /** Characters (code points), not UTF-16 units. */
  readonly max: number;
  /** Only printable ASCII, with no space at either end. */
  readonly printable_ascii?: boolean;
}

/** What is wrong with a text, to be read after the field's name; null where nothing is. */
export function textProblem(text: string, rule: TextRule): string | null {
  if (text.includes('\0')) return 'must not contain the character U+0000';
  if (LONE_SURROGATE.test(text)) return 'must not contain half of a surrogate pair (it is no valid Unicode text)';
  if (!hasLength(text, rule)) return `must be ${rule.min} to ${rule.max} characters long`;
  if (rule.printable_ascii === true && text !== '' && !PRINTABLE_ASCII.test(text)) {
    return 'must be printable ASCII characters, with no space at either end';
  }
  return null;
}

function hasLength(text: string, { min, max }: TextRule): boolean {
  // A character is one or two units: mostly the units settle it without counting.
  if (text.length <= max) return text.length >= min && (min < 2 || countCharacters(text) >= min);
  return text.length <= 2 * max && countCharacters(text) <= max;
}

function countCharacters(text: string): number {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

/**
 * A JSON Pointer (RFC 6901) for an error's path. Member names come from the caller: long ones are cut, and the path
 * stops above a name that looks like a card number, so that no answer or log repeats one.
 */
export function jsonPointer(path: readonly PropertyKey[]): string {
  let pointer = '';
  for (const step of path) {
    const name = String(step);
    if (containsCardNumber(name)) return pointer;
    pointer += `/${shortened(name).replaceAll('~', '~0').replaceAll('/', '~1')}`;
  }
  return pointer;
}

function shortened(name: string): string {
  const shown = name.length > MAX_SHOWN_NAME ? `${name.slice(0, MAX_SHOWN_NAME)}…` : name;
  return shown.replace(/[\p{Surrogate}\p{Control}]/gu, '\ufffd');
}
