import type { Pool, PoolClient } from 'pg';
import { newId } from '../domain/id.js';
import { inTransaction } from '../database/transaction.js';
import { generateApiKey, type NewApiKey } from './api-key.js';
import type { Scope } from './scopes.js';

/** A change that can't be made as asked; the message says why and what there is instead. */
export class ClientRefusal extends Error {
  override readonly name = 'ClientRefusal';
}

export interface ChangeBy {
  /** Who did it, for the audit: `cli:anna@host`, `bootstrap`. */
  readonly actor: string;
}

export interface KeyState {
  readonly id: string;
  readonly client_id: string;
  readonly hint: string;
  readonly revoked_at: Date | null;
}

/**
 * Makes a client with its first key. Every function here writes its audit row in the transaction of the change.
 * @throws ClientRefusal when the id is taken
 */
export function createClient(
  pool: Pool,
  client: { readonly id: string; readonly name: string; readonly scopes: readonly Scope[] },
  by: ChangeBy,
): Promise<NewApiKey> {
  return inTransaction(pool, async (tx) => {
    const made = await tx.query(
      `insert into api_client (id, name, scopes) values ($1, $2, $3) on conflict (id) do nothing returning id`,
      [client.id, client.name, client.scopes],
    );
    if (made.rowCount === 0) throw new ClientRefusal(`There is a client ${client.id} already; see "list"`);
    const key = generateApiKey();
    const key_id = await addKey(tx, client.id, key);
    await audit(tx, client.id, 'client_created', { name: client.name, scopes: client.scopes, key_id }, by);
    return key;
  });
}

/**
 * Gives a client a new key. Those it has go on for `overlap_h` hours, or shorter where they expire before.
 * @throws ClientRefusal when there is no such client
 */
export function rotateKey(pool: Pool, client_id: string, overlap_h: number, by: ChangeBy): Promise<NewApiKey> {
  return inTransaction(pool, async (tx) => {
    await lockClient(tx, client_id);
    const { rows } = await tx.query<{ id: string }>(
      `update api_key set expires_at = least(expires_at, clock_timestamp() + make_interval(secs => $2::float8 * 3600))
       where client_id = $1 and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
       returning id`,
      [client_id, overlap_h],
    );
    const key = generateApiKey();
    const key_id = await addKey(tx, client_id, key);
    await audit(tx, client_id, 'key_rotated', { key_id, overlap_h, expiring: rows.map((row) => row.id) }, by);
    return key;
  });
}

/**
 * Revokes a key for good. One that is revoked already stays as it is.
 * @param reference the key's id, or a hint that only one key has
 * @returns the key, with when it was revoked *before*; null: just now
 * @throws ClientRefusal when there is no such key, or more than one
 */
export function revokeKey(pool: Pool, reference: string, by: ChangeBy): Promise<KeyState> {
  return inTransaction(pool, async (tx) => {
    const { rows } = await tx.query<KeyState>(
      `select id, client_id, hint, revoked_at from api_key where id::text = lower($1) or hint = $1 order by id for update`,
      [reference],
    );
    const [key] = rows;
    if (key === undefined) throw new ClientRefusal(`There is no key ${reference}; see "list"`);
    if (rows.length > 1) {
      throw new ClientRefusal(
        `More than one key begins with ${reference}: use an id. ${rows.map((row) => row.id).join(', ')}`,
      );
    }
    if (key.revoked_at === null) {
      await tx.query(`update api_key set revoked_at = clock_timestamp() where id = $1`, [key.id]);
      await audit(tx, key.client_id, 'key_revoked', { key_id: key.id, hint: key.hint }, by);
    }
    return key;
  });
}

/** @throws ClientRefusal when there is no such client */
export function setScopes(pool: Pool, client_id: string, scopes: readonly Scope[], by: ChangeBy): Promise<void> {
  return inTransaction(pool, async (tx) => {
    const before = await lockClient(tx, client_id);
    await tx.query(`update api_client set scopes = $2, updated_at = clock_timestamp() where id = $1`, [
      client_id,
      scopes,
    ]);
    await audit(tx, client_id, 'scopes_changed', { from: before.scopes, to: scopes }, by);
  });
}

/**
 * Disables a client with all its keys, or enables it again. Nothing is done where it is so already.
 * @returns whether anything changed
 * @throws ClientRefusal when there is no such client
 */
export function setDisabled(pool: Pool, client_id: string, disabled: boolean, by: ChangeBy): Promise<boolean> {
  return inTransaction(pool, async (tx) => {
    const before = await lockClient(tx, client_id);
    if ((before.disabled_at !== null) === disabled) return false;
    await tx.query(
      `update api_client set disabled_at = case when $2 then clock_timestamp() end, updated_at = clock_timestamp()
       where id = $1`,
      [client_id, disabled],
    );
    await audit(tx, client_id, disabled ? 'client_disabled' : 'client_enabled', {}, by);
    return true;
  });
}

/** Adds a key that was made before, in the caller's transaction. @returns its id */
export async function addKey(tx: PoolClient, client_id: string, key: NewApiKey): Promise<string> {
  const id = newId();
  await tx.query(`insert into api_key (id, client_id, key_hash, hint) values ($1, $2, $3, $4)`, [
    id,
    client_id,
    key.hash,
    key.hint,
  ]);
  return id;
}

export async function audit(
  tx: PoolClient,
  client_id: string,
  action: string,
  detail: Readonly<Record<string, unknown>>,
  by: ChangeBy,
): Promise<void> {
  await tx.query(`insert into client_audit (id, client_id, action, actor, detail) values ($1, $2, $3, $4, $5)`, [
    newId(),
    client_id,
    action,
    by.actor,
    JSON.stringify(detail),
  ]);
}

/** Changes of one client come one after another: what an audit row says was so before really was. */
async function lockClient(tx: PoolClient, client_id: string): Promise<{ scopes: string[]; disabled_at: Date | null }> {
  const { rows } = await tx.query<{ scopes: string[]; disabled_at: Date | null }>(
    `select scopes, disabled_at from api_client where id = $1 for no key update`,
    [client_id],
  );
  const [client] = rows;
  if (client === undefined) throw new ClientRefusal(`There is no client ${client_id}; see "list"`);
  return client;
}
