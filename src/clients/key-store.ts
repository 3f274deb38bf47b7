import type { Pool } from 'pg';

/** What the triggers of migration `api_key_notify` notify: keys or clients have changed. */
export const KEYS_CHANNEL = 'oncepay_keys_changed';

/** A key that is valid now, with its client. */
export interface KeyRow {
  readonly api_key_id: string;
  readonly client_id: string;
  readonly key_hash: Buffer;
  readonly scopes: readonly string[];
  /** Milliseconds by the database's clock; null: it does not expire. */
  readonly expires_in_ms: number | null;
}

/** Asks for keys by their hashes. Expired and revoked keys and those of disabled clients are left out. */
export async function findValidKeys(pool: Pool, hashes: readonly Buffer[]): Promise<readonly KeyRow[]> {
  const { rows } = await pool.query<KeyRow>({
    name: 'find_valid_keys',
    text: `
      select k.id as api_key_id, k.client_id, k.key_hash, c.scopes,
        (extract(epoch from k.expires_at - clock_timestamp()) * 1000)::float8 as expires_in_ms
      from api_key k join api_client c on c.id = k.client_id
      where k.key_hash = any($1::bytea[])
        and k.revoked_at is null and c.disabled_at is null
        and (k.expires_at is null or k.expires_at > clock_timestamp())`,
    values: [hashes],
  });
  return rows;
}

/** When keys were last used: `used_at` by key id. Rows are locked in one order, so that instances don't deadlock. */
export async function recordLastUse(pool: Pool, uses: ReadonlyMap<string, Date>): Promise<void> {
  await pool.query(
    `with used as (
       select k.id, i.used_at from api_key k
       join unnest($1::uuid[], $2::timestamptz[]) as i (id, used_at) on i.id = k.id
       order by k.id for no key update of k)
     update api_key k set last_used_at = greatest(k.last_used_at, used.used_at) from used where k.id = used.id`,
    [[...uses.keys()], [...uses.values()]],
  );
}
