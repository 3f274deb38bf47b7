import type { Pool } from 'pg';
import { inTransaction } from '../database/transaction.js';
import { describeApiKey, isWellFormedApiKey } from './api-key.js';
import { addKey, audit } from './changes.js';
import { SCOPES } from './scopes.js';

const DEFAULT_CLIENT_ID = 'default';

/**
 * The first way in: where no client exists, makes the client `default` with this key and every scope. Where one exists,
 * nothing happens, so that a key left in the environment opens nothing later. Several instances may start at once.
 * @returns whether it made the client
 * @throws Error when the key is no possible API key
 */
export async function bootstrapClient(pool: Pool, api_key: string): Promise<boolean> {
  if (!isWellFormedApiKey(api_key)) {
    throw new Error('BOOTSTRAP_API_KEY: must be 16 to 256 printable ASCII characters without spaces');
  }
  return inTransaction(pool, async (tx) => {
    const { rowCount } = await tx.query(
      `insert into api_client (id, name, scopes)
       select $1, 'Default', $2::text[] where not exists (select from api_client)
       on conflict (id) do nothing`,
      [DEFAULT_CLIENT_ID, SCOPES],
    );
    if (rowCount === 0) return false;
    const key_id = await addKey(tx, DEFAULT_CLIENT_ID, describeApiKey(api_key));
    await audit(tx, DEFAULT_CLIENT_ID, 'client_created', { scopes: SCOPES, key_id }, { actor: 'bootstrap' });
    return true;
  });
}
