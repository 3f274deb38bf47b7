import { hash } from 'node:crypto';
import { toMicrosecondsUtc } from './time.js';

/** Where a page ended. `created_at` is text from SQL, in UTC with microseconds: a Date would lose three digits. */
export interface CursorPosition {
  /** `2026-01-31T10:00:00.123456Z` */
  readonly created_at: string;
  readonly id: string;
}

const VERSION = '1';
const CHECK_LENGTH = 16;
const CONTENT =
  /^1(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})([0-9a-f]{16})$/;
/** 1 + 27 + 36 + 16 characters. */
const ENCODED_LENGTH = 107;

/**
 * An opaque cursor: base64url of version, position and a check value over position and list. It guards against
 * mistakes (a cursor of another list, a cut or edited one), not against attackers: what a cursor may see is decided
 * by the query, which always has the client in it.
 * @param list what the list is: its name and filters, without the limit, which may change from page to page
 */
export function encodeCursor(position: CursorPosition, list: readonly unknown[]): string {
  const { created_at, id } = position;
  return Buffer.from(`${VERSION}${created_at}${id}${check(position, list)}`, 'latin1').toString('base64url');
}

/** The position that a cursor holds; null if it is none, or one of another list. */
export function decodeCursor(cursor: string, list: readonly unknown[]): CursorPosition | null {
  if (cursor.length !== ENCODED_LENGTH) return null;
  const match = CONTENT.exec(Buffer.from(cursor, 'base64url').toString('latin1'));
  const [, created_at, id] = match ?? [];
  if (created_at === undefined || id === undefined) return null;
  // Written again it must be the same text: base64 readers are lenient. The time must be one: 13 months are an error in SQL.
  const position = { created_at, id };
  return encodeCursor(position, list) === cursor && toMicrosecondsUtc(created_at) === created_at ? position : null;
}

function check({ created_at, id }: CursorPosition, list: readonly unknown[]): string {
  return hash('sha256', JSON.stringify(['oncepay.cursor', VERSION, created_at, id, list])).slice(0, CHECK_LENGTH);
}
