/**
 * PostgreSQL's arrays in its binary format, for `$1::uuid[]` and the like. pg sends a Buffer as it stands; a JavaScript
 * array it turns into text, every element quoted by two regular expressions, which PostgreSQL takes apart again character
 * by character. For the arrays of a batch that was a tenth of the service's time and a fifteenth of the database's
 * (docs/performance.md). Format: array_send and the send functions of the element types in PostgreSQL's source.
 */

/** Of the element types, from pg_type. They are fixed for ever. */
const OID = { bytea: 17, int8: 20, int2: 21, int4: 23, text: 25, timestamptz: 1184, uuid: 2950 } as const;

const HEADER_BYTES = 20;
const NULL_LENGTH = -1;
/** PostgreSQL counts microseconds from 2000-01-01. */
const POSTGRES_EPOCH_MS = Date.UTC(2000, 0, 1);

type Values<T> = readonly (T | null)[];

/** @param strings well-formed: a lone surrogate would silently become U+FFFD, so it is refused at the border */
export function textArray(strings: Values<string>): Buffer {
  let bytes = HEADER_BYTES + 4 * strings.length;
  const lengths = strings.map((value) => {
    if (value === null) return NULL_LENGTH;
    const length = Buffer.byteLength(value);
    bytes += length;
    return length;
  });
  const buffer = header(OID.text, strings.length, bytes);
  let at = HEADER_BYTES;
  for (let index = 0; index < strings.length; index += 1) {
    const length = lengths[index] ?? NULL_LENGTH;
    at = buffer.writeInt32BE(length, at);
    if (length > 0) at += buffer.write(strings[index] ?? '', at, length, 'utf8');
  }
  return buffer;
}

export function byteaArray(values: Values<Buffer>): Buffer {
  const bytes = values.reduce((sum, value) => sum + 4 + (value?.length ?? 0), HEADER_BYTES);
  const buffer = header(OID.bytea, values.length, bytes);
  let at = HEADER_BYTES;
  for (const value of values) {
    at = buffer.writeInt32BE(value?.length ?? NULL_LENGTH, at);
    if (value !== null) at += value.copy(buffer, at);
  }
  return buffer;
}

/** @param ids in the form `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` */
export function uuidArray(ids: Values<string>): Buffer {
  return fixedArray(OID.uuid, 16, ids, writeUuid);
}

export function int2Array(values: Values<number>): Buffer {
  return fixedArray(OID.int2, 2, values, (buffer, value, at) => buffer.writeInt16BE(value, at));
}

export function int4Array(values: Values<number>): Buffer {
  return fixedArray(OID.int4, 4, values, (buffer, value, at) => buffer.writeInt32BE(value, at));
}

export function int8Array(values: Values<bigint>): Buffer {
  return fixedArray(OID.int8, 8, values, (buffer, value, at) => buffer.writeBigInt64BE(value, at));
}

/** To the millisecond, which is what a Date has. */
export function timestamptzArray(values: Values<Date>): Buffer {
  return fixedArray(OID.timestamptz, 8, values, (buffer, value, at) => {
    const microseconds = (value.getTime() - POSTGRES_EPOCH_MS) * 1000;
    const high = Math.floor(microseconds / 2 ** 32);
    buffer.writeInt32BE(high, at);
    buffer.writeUInt32BE(microseconds - high * 2 ** 32, at + 4);
  });
}

function fixedArray<T>(
  oid: number,
  size: number,
  values: Values<T>,
  write: (buffer: Buffer, value: T, at: number) => unknown,
): Buffer {
  const buffer = header(oid, values.length, HEADER_BYTES + (4 + size) * values.length);
  let at = HEADER_BYTES;
  for (const value of values) {
    at = buffer.writeInt32BE(value === null ? NULL_LENGTH : size, at);
    if (value !== null) {
      write(buffer, value, at);
      at += size;
    }
  }
  // Nulls have no bytes of their own.
  return buffer.subarray(0, at);
}

/** One dimension, counted from 1: dimensions, whether there are nulls, element type, then length and lower bound. */
function header(oid: number, length: number, bytes: number): Buffer {
  const buffer = Buffer.allocUnsafe(bytes);
  buffer.writeInt32BE(1, 0);
  buffer.writeInt32BE(1, 4);
  buffer.writeInt32BE(oid, 8);
  buffer.writeInt32BE(length, 12);
  buffer.writeInt32BE(1, 16);
  return buffer;
}

/** Where the hexadecimal digits of each byte begin in the text of a UUID. */
const UUID_PLACES = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

function writeUuid(buffer: Buffer, id: string, at: number): void {
  for (let byte = 0; byte < 16; byte += 1) {
    const place = UUID_PLACES[byte] ?? 0;
    buffer[at + byte] = (hexDigit(id, place) << 4) | hexDigit(id, place + 1);
  }
}

function hexDigit(text: string, place: number): number {
  // Lower case; digits have this bit already.
  const code = text.charCodeAt(place) | 0x20;
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  if (code >= 0x61 && code <= 0x66) return code - 0x57;
  throw new TypeError(`not a UUID: ${text}`);
}
