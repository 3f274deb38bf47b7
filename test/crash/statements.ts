import { readdirSync, readFileSync } from 'node:fs';

const SOURCES = new URL('../../src/', import.meta.url);

/**
 * How a statement is known on the wire that has no name there, as through a pooler: by a part of its text that no other of
 * ours has.
 */
export const PARTS = {
  reserve_insert: 'lease.until, lease.until,',
  reserve_and_begin_charge: 'lease_token, lease_until, payment_id, operation_id, success_status)',
  settle: '), pays as materialized (',
} as const;
export type Statement = keyof typeof PARTS | 'COMMIT';

/** What goes over the wire with a statement, and with no other. */
export function partOf(statement: Statement, is_named: boolean): string {
  return is_named || statement === 'COMMIT' ? `${statement}\0` : PARTS[statement];
}

/** The names of the statements in src that a part is found in. */
export function statementsWith(part: string): string[] {
  return readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.startsWith('database/generated'))
    .flatMap((name) => readFileSync(new URL(name, SOURCES), 'utf8').split(/(?=\bname: ')/))
    .filter((text) => text.includes(part))
    .map((text) => /^name: '(\w+)'/.exec(text)?.[1] ?? text);
}
