import type { Pool } from 'pg';

export interface ListedKey {
  readonly id: string;
  readonly hint: string;
  readonly state: 'valid' | 'expiring' | 'expired' | 'revoked';
  readonly created_at: Date;
  readonly expires_at: Date | null;
  readonly last_used_at: Date | null;
}

export interface ListedClient {
  readonly id: string;
  readonly name: string;
  readonly scopes: readonly string[];
  readonly disabled: boolean;
  readonly keys: readonly ListedKey[];
}

interface Row extends Omit<ListedKey, 'id' | 'hint' | 'created_at'> {
  readonly client_id: string;
  readonly name: string;
  readonly scopes: string[];
  readonly disabled: boolean;
  readonly key_id: string | null;
  readonly hint: string;
  readonly created_at: Date;
}

/** Every client with its keys, oldest key first. */
export async function listClients(pool: Pool): Promise<readonly ListedClient[]> {
  const { rows } = await pool.query<Row>(`
    select c.id as client_id, c.name, c.scopes, c.disabled_at is not null as disabled,
      k.id as key_id, k.hint, k.created_at, k.expires_at, k.last_used_at,
      case when k.revoked_at is not null then 'revoked' when k.expires_at is null then 'valid'
        when k.expires_at > clock_timestamp() then 'expiring' else 'expired' end as state
    from api_client c left join api_key k on k.client_id = c.id
    order by c.id, k.id`);
  const clients = new Map<string, ListedClient & { keys: ListedKey[] }>();
  for (const { client_id, name, scopes, disabled, key_id, ...key } of rows) {
    const client = clients.get(client_id) ?? { id: client_id, name, scopes, disabled, keys: [] };
    clients.set(client_id, client);
    if (key_id !== null) client.keys.push({ id: key_id, ...key });
  }
  return [...clients.values()];
}
