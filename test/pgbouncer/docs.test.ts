import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { startPgBouncer } from '../../scripts/pgbouncer/pgbouncer.js';
import { openPool } from '../../src/database/database.js';
import { checkSession, SERVICE_SETTINGS } from '../../src/database/session.js';
import { adminUrl, createTestDatabase } from '../support/database.js';

const PAGE = readFileSync(new URL('../../docs/pgbouncer.md', import.meta.url), 'utf8');
const block = (language: string): string => new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``).exec(PAGE)?.[1] ?? '';

/** What is of the page's own network and accounts, and here as this run has it. */
const OF_THE_PLACE = /^(listen_|auth_|admin_users)/;

test('what docs/pgbouncer.md sets up is what the service needs', async () => {
  const database = await createTestDatabase(null);
  const lines = [...block('ini').matchAll(/^(\w+) = (.*)$/gm)].map(
    ([, name = '', value = '']) => [name, value] as const,
  );
  const ini = Object.fromEntries(lines.filter(([name]) => name !== 'oncepay' && !OF_THE_PLACE.test(name)));
  expect(ini).toMatchObject({ pool_mode: 'transaction', default_pool_size: '20' });
  const bouncer = await startPgBouncer({ server_url: adminUrl(), pool_size: 1, settings: {}, ini });
  const direct = openPool(database.direct_url, { pool_size: 1 });
  const pool = openPool(bouncer.through(database.direct_url), { pool_size: 2, pooler: 'transaction' });
  try {
    const sql = block('sql').replaceAll(
      'ROLE oncepay IN DATABASE oncepay',
      `ROLE CURRENT_USER IN DATABASE ${databaseOf(database.direct_url)}`,
    );
    const set = [...sql.matchAll(/SET (\w+) = (\w+);/g)].map(([, name = '', value = '']) => [name, value]);
    expect(Object.fromEntries(set)).toEqual(SERVICE_SETTINGS);
    await direct.query(sql);
    await checkSession(pool, 'transaction');
  } finally {
    await Promise.all([direct.end(), pool.end()]);
    await bouncer.stop();
    await database.drop();
  }
});

const databaseOf = (url: string): string => new URL(url).pathname.slice(1);
