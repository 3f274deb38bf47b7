import type pg from 'pg';
import { MAX_AMOUNT_MINOR } from '../domain/money.js';

/** A row of `account`. Amounts are whole minor units of its currency. */
export interface Account {
  readonly id: string;
  readonly client_id: string;
  readonly kind: AccountKind;
  readonly name: string;
  readonly currency: string;
  readonly balance_minor: bigint;
  /** The number of its entries. */
  readonly version: number;
  readonly created_at: Date;
  readonly updated_at: Date;
}

/** `external`: the world outside, which money comes from and goes to; the only kind that may be below zero. */
export type AccountKind = 'internal' | 'external';

/** Money from one account to another of the same client and currency. */
export interface TransferRequest {
  /** Made once by whoever wants the transfer; it names it for ever. */
  readonly transfer_id: string;
  readonly client_id: string;
  readonly debit_account_id: string;
  readonly credit_account_id: string;
  readonly amount_minor: bigint;
  readonly currency: string;
  readonly saga_id: string | null;
  readonly step_name: string | null;
}

export const REFUSALS = [
  'forbidden',
  'account_not_found',
  'same_account',
  'currency_mismatch',
  'insufficient_funds',
  'balance_limit',
] as const;
export type Refusal = (typeof REFUSALS)[number];

export type TransferResult =
  | { readonly type: 'posted'; readonly debited: Account; readonly credited: Account }
  | { readonly type: 'refused'; readonly refusal: Refusal }
  /** It was posted or refused before; nothing is done. */
  | { readonly type: 'known' }
  /** Its id was used before, for something else; nothing is done. */
  | { readonly type: 'contradiction' };

/**
 * Posts a transfer in the caller's transaction: two entries that sum to zero, and both balances. Whatever is decided,
 * also a refusal, is decided once for its `transfer_id`, for ever.
 * @param forbidden the client may not do this: refused, on record
 */
export async function postTransfer(
  tx: pg.PoolClient,
  request: TransferRequest,
  forbidden = false,
): Promise<TransferResult> {
  if (!(await claimId(tx, request))) {
    return (await isSameRequest(tx, request)) ? { type: 'known' } : { type: 'contradiction' };
  }
  const accounts = await lockAccounts(tx, request);
  const debited = accounts.get(request.debit_account_id);
  const credited = accounts.get(request.credit_account_id);
  const refusal = forbidden ? 'forbidden' : reasonAgainst(request, debited, credited);
  if (refusal !== null || debited === undefined || credited === undefined) {
    return refuse(tx, request, refusal ?? 'account_not_found');
  }
  return {
    type: 'posted',
    debited: await enter(tx, request, debited, -request.amount_minor),
    credited: await enter(tx, request, credited, request.amount_minor),
  };
}

/** The row that makes the id ours; a second transfer of this id at the same time waits here for the first to end. */
async function claimId(tx: pg.PoolClient, request: TransferRequest): Promise<boolean> {
  const { rowCount } = await tx.query(
    `INSERT INTO transfer (transfer_id, client_id, debit_account_id, credit_account_id, amount_minor, currency, status, saga_id, step_name)
     VALUES ($1, $2, $3, $4, $5, $6, 'posted', $7, $8) ON CONFLICT (transfer_id) DO NOTHING`,
    [...identityOf(request), request.saga_id, request.step_name],
  );
  return rowCount === 1;
}

async function isSameRequest(tx: pg.PoolClient, request: TransferRequest): Promise<boolean> {
  const { rowCount } = await tx.query(
    `SELECT FROM transfer WHERE transfer_id = $1 AND client_id = $2 AND debit_account_id = $3 AND credit_account_id = $4
       AND amount_minor = $5 AND currency = $6`,
    identityOf(request),
  );
  return rowCount === 1;
}

function identityOf(request: TransferRequest): unknown[] {
  const { transfer_id, client_id, debit_account_id, credit_account_id, amount_minor, currency } = request;
  return [transfer_id, client_id, debit_account_id, credit_account_id, amount_minor, currency];
}

/** Both rows, locked in the order of their ids, whichever way the money goes: two transfers can't wait for each other. */
async function lockAccounts(tx: pg.PoolClient, request: TransferRequest): Promise<Map<string, Account>> {
  const { rows } = await tx.query<Account>(
    `SELECT ${ACCOUNT} FROM account WHERE id = ANY($1::uuid[]) AND client_id = $2 ORDER BY id FOR NO KEY UPDATE`,
    [[request.debit_account_id, request.credit_account_id], request.client_id],
  );
  return new Map(rows.map((row) => [row.id, row]));
}

function reasonAgainst(
  request: TransferRequest,
  debited: Account | undefined,
  credited: Account | undefined,
): Refusal | null {
  if (request.debit_account_id === request.credit_account_id) return 'same_account';
  if (debited === undefined || credited === undefined) return 'account_not_found';
  if (debited.currency !== request.currency || credited.currency !== request.currency) return 'currency_mismatch';
  const left = debited.balance_minor - request.amount_minor;
  if (debited.kind === 'internal' && left < 0n) return 'insufficient_funds';
  if (left < -MAX_AMOUNT_MINOR || credited.balance_minor + request.amount_minor > MAX_AMOUNT_MINOR)
    return 'balance_limit';
  return null;
}

async function refuse(tx: pg.PoolClient, request: TransferRequest, refusal: Refusal): Promise<TransferResult> {
  await tx.query(`UPDATE transfer SET status = 'refused', refusal = $2 WHERE transfer_id = $1`, [
    request.transfer_id,
    refusal,
  ]);
  return { type: 'refused', refusal };
}

/** One entry and the balance that it makes, of an account that is locked. */
async function enter(
  tx: pg.PoolClient,
  request: TransferRequest,
  account: Account,
  amount_minor: bigint,
): Promise<Account> {
  const { rows } = await tx.query<Account>(
    `WITH changed AS (
       UPDATE account SET balance_minor = balance_minor + $2, version = version + 1, updated_at = clock_timestamp()
       WHERE id = $1 RETURNING *
     ), entered AS (
       INSERT INTO ledger_entry (account_id, sequence, transfer_id, amount_minor, balance_minor)
       SELECT id, version, $3, $2, balance_minor FROM changed
     )
     SELECT ${ACCOUNT} FROM changed`,
    [account.id, amount_minor, request.transfer_id],
  );
  const [changed] = rows;
  if (changed === undefined) throw new Error(`account ${account.id} is gone`);
  return changed;
}

const ACCOUNT = 'id, client_id, kind, name, currency, balance_minor, version, created_at, updated_at';

/** Opens an account with a balance of zero. */
export async function openAccount(
  connection: pg.Pool | pg.PoolClient,
  account: Pick<Account, 'id' | 'client_id' | 'kind' | 'name' | 'currency'>,
): Promise<Account> {
  const { rows } = await connection.query<Account>(
    `INSERT INTO account (id, client_id, kind, name, currency) VALUES ($1, $2, $3, $4, $5) RETURNING ${ACCOUNT}`,
    [account.id, account.client_id, account.kind, account.name, account.currency],
  );
  const [opened] = rows;
  if (opened === undefined) throw new Error('the account was not opened');
  return opened;
}

/** An account of this client; of any client where `client_id` is null. */
export async function findAccount(
  connection: pg.Pool | pg.PoolClient,
  id: string,
  client_id: string | null,
): Promise<Account | null> {
  const { rows } = await connection.query<Account>({
    name: 'account_find',
    text: `SELECT ${ACCOUNT} FROM account WHERE id = $1 AND ($2::text IS NULL OR client_id = $2)`,
    values: [id, client_id],
  });
  return rows[0] ?? null;
}

export interface LedgerEntry {
  readonly sequence: number;
  readonly transfer_id: string;
  /** Negative: taken from the account. */
  readonly amount_minor: bigint;
  readonly balance_minor: bigint;
  readonly created_at: Date;
}

/** Entries of an account, newest first, from below `before` (null: from the newest). */
export async function listEntries(
  connection: pg.Pool | pg.PoolClient,
  account_id: string,
  page: { readonly before: number | null; readonly limit: number },
): Promise<LedgerEntry[]> {
  const { rows } = await connection.query<LedgerEntry>({
    name: 'ledger_entries',
    text: `SELECT sequence, transfer_id, amount_minor, balance_minor, created_at FROM ledger_entry
           WHERE account_id = $1 AND ($2::integer IS NULL OR sequence < $2) ORDER BY sequence DESC LIMIT $3`,
    values: [account_id, page.before, page.limit],
  });
  return rows;
}
