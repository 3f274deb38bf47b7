import { readFileSync } from 'node:fs';
import pg from 'pg';
import { expect, it } from 'vitest';
import { createTestDatabase } from '../support/database.js';

const SCALARS = new Set(['String', 'Int', 'BigInt', 'Boolean', 'DateTime', 'Json', 'Bytes']);

/** `table.column` with `?` where it may be null, as schema.prisma has it. */
function prismaColumns(schema: string): string[] {
  return [...schema.matchAll(/^model \w+ \{\n(.*?)^\}/gms)].flatMap(([, body = '']) => {
    const table = /@@map\("(\w+)"\)/.exec(body)?.[1] ?? '';
    const fields = [...body.matchAll(/^ {2}(\w+)\s+(\w+)(\[\])?(\?)?(.*)$/gm)];
    return fields
      .filter(([, , type = '']) => SCALARS.has(type))
      .map(([, name = '', , , optional, rest = '']) => {
        const column = / @map\("(\w+)"\)/.exec(rest)?.[1] ?? name;
        return `${table}.${column}${optional ?? ''}`;
      });
  });
}

it('schema.prisma tells of the tables that the migrations make, column by column', async () => {
  const database = await createTestDatabase(null);
  const client = new pg.Client({ connectionString: database.direct_url });
  await client.connect();
  try {
    const { rows } = await client.query<{ name: string }>(
      `select table_name || '.' || column_name || case when is_nullable = 'YES' then '?' else '' end as name
       from information_schema.columns where table_schema = 'public' and table_name <> '_prisma_migrations'`,
    );
    const told = prismaColumns(readFileSync(new URL('../../prisma/schema.prisma', import.meta.url), 'utf8'));
    expect(told.toSorted()).toEqual(rows.map(({ name }) => name).toSorted());
  } finally {
    await client.end();
    await database.drop();
  }
});
