import { randomUUID } from 'node:crypto';
import type pg from 'pg';

/**
 * The id of this installation: part of every provider key and of the metadata at the provider. Made once and kept in
 * the database; instances that start at once agree on one.
 *
 * One that is configured is stored. Once there are payments it can't be changed to another: every provider key is
 * derived from it, so a retry would be a new charge to the provider, and its events would count as somebody else's.
 * @throws Error with a text for people, when another one is stored and there are payments
 */
export async function settleInstallation(pool: pg.Pool, configured: string | null): Promise<string> {
  await pool.query('INSERT INTO installation (id) VALUES ($1) ON CONFLICT DO NOTHING', [configured ?? randomUUID()]);
  const stored = await readInstallation(pool);
  if (configured === null || configured === stored) return stored;
  const changed = await pool.query(
    'UPDATE installation SET id = $1 WHERE id = $2 AND NOT EXISTS (SELECT FROM payment)',
    [configured, stored],
  );
  if (changed.rowCount === 1) return configured;
  throw new Error(
    `INSTALLATION_ID: the database was made by ${stored} and has payments, whose keys at the provider depend on that. ` +
      `Set INSTALLATION_ID to ${stored}, or use another database`,
  );
}

async function readInstallation(pool: pg.Pool): Promise<string> {
  const { rows } = await pool.query<{ id: string }>('SELECT id FROM installation');
  const [row] = rows;
  if (row === undefined) throw new Error('The table installation has no row');
  return row.id;
}
