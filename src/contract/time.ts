/** RFC 3339 with at most nanoseconds. Leap seconds are not in it: PostgreSQL has none either. */
const RFC3339 =
  /^(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;
const MICROSECONDS_UTC = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

/**
 * Reads an RFC 3339 time with any offset and writes it in UTC with microseconds, PostgreSQL's precision
 * (`2026-01-31T10:00:00.123457Z`); null for what is no such time. A Date would cut it to milliseconds and skip or
 * repeat rows. Finer digits are rounded *up*: then `t >= x` and `t < x` are true for the same stored times as before.
 */
export function toMicrosecondsUtc(text: string): string | null {
  const match = RFC3339.exec(text);
  if (match === null) return null;
  const [, year, month, day, hour, minute, second, fraction = '', offset = ''] = match;
  const wholeSecond_ms = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}${offset.toUpperCase()}`);
  // Date.parse takes 30 February for 2 March.
  if (Number.isNaN(wholeSecond_ms) || Number(day) > daysInMonth(Number(year), Number(month))) return null;
  const microseconds = Math.ceil(Number(fraction.padEnd(9, '0')) / 1000);
  const carry = microseconds === 1_000_000;
  const utc = new Date(wholeSecond_ms + (carry ? 1000 : 0)).toISOString();
  const written = `${utc.slice(0, -5)}.${(carry ? 0 : microseconds).toString().padStart(6, '0')}Z`;
  // An offset can lead out of the years 0001–9999, which is what both sides can write with four digits.
  return MICROSECONDS_UTC.test(written) && !written.startsWith('0000') ? written : null;
}

function daysInMonth(year: number, month: number): number {
  // Day 0 of the next month; setUTCFullYear, because the constructor takes the years 0–99 for 1900–1999.
  const date = new Date(0);
  date.setUTCFullYear(year, month, 0);
  return date.getUTCDate();
}
