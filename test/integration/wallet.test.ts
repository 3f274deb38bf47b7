import { randomInt } from 'node:crypto';
import { uuidv7 } from 'uuidv7';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createClient } from '../../src/clients/changes.js';
import type { Database } from '../../src/database/database.js';
import { inTransaction } from '../../src/database/transaction.js';
import {
  listEntries,
  openAccount,
  postTransfer,
  type TransferRequest,
  type TransferResult,
} from '../../src/wallet/ledger.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';

let own: TestDatabase;
let database: Database;
beforeEach(async () => {
  own = await createTestDatabase();
  database = own.open({ pool_size: 16, onError: () => undefined });
  await createClient(database.pool, { id: 'shop', name: 'shop', scopes: [] }, { actor: 'test' });
});
afterEach(async () => {
  await database.close();
  await own.drop();
});

const open = async (kind: 'internal' | 'external', currency = 'EUR'): Promise<string> =>
  (await openAccount(database.pool, { id: uuidv7(), client_id: 'shop', kind, name: '', currency })).id;

function transfer(
  more: Partial<TransferRequest> & Pick<TransferRequest, 'debit_account_id' | 'credit_account_id'>,
): Promise<TransferResult> {
  const request = {
    transfer_id: uuidv7(),
    client_id: 'shop',
    amount_minor: 100n,
    currency: 'EUR',
    saga_id: null,
    step_name: null,
    ...more,
  };
  return inTransaction(database.pool, (tx) => postTransfer(tx, request));
}

const rows = async <Row extends object>(text: string, values: unknown[] = []): Promise<Row[]> =>
  (await database.pool.query<Row>(text, values)).rows;

describe('the ledger', () => {
  it('keeps its books under 16 sessions that move money in circles', async () => {
    const external = await open('external');
    const accounts = await Promise.all(Array.from({ length: 4 }, () => open('internal')));
    for (const credit_account_id of accounts)
      await transfer({ debit_account_id: external, credit_account_id, amount_minor: 300n });
    const results = await Promise.all(
      Array.from({ length: 200 }, async () => {
        const [from, to] = [randomInt(4), randomInt(4)];
        return transfer({
          debit_account_id: accounts[from]!,
          credit_account_id: accounts[to]!,
          amount_minor: BigInt(randomInt(1, 200)),
        });
      }),
    );
    expect(new Set(results.map(({ type }) => type))).toEqual(new Set(['posted', 'refused']));
    const balances = await rows<{ balance_minor: bigint; kind: string }>('select balance_minor, kind from account');
    expect(balances.reduce((sum, { balance_minor }) => sum + balance_minor, 0n)).toBe(0n);
    expect(balances.filter(({ kind, balance_minor }) => kind === 'internal' && balance_minor < 0n)).toEqual([]);
    expect(
      await rows(`select a.id from account a join ledger_entry e on e.account_id = a.id
                  group by a.id having a.balance_minor <> sum(e.amount_minor) or a.version <> count(*)`),
    ).toEqual([]);
  });

  it('posts a transfer once, also where 16 sessions ask for it at the same time', async () => {
    const [from, to] = [await open('external'), await open('internal')];
    const transfer_id = uuidv7();
    const results = await Promise.all(
      Array.from({ length: 16 }, () => transfer({ transfer_id, debit_account_id: from, credit_account_id: to })),
    );
    expect(results.filter(({ type }) => type === 'posted')).toHaveLength(1);
    expect(results.filter(({ type }) => type === 'known')).toHaveLength(15);
    expect(await transfer({ transfer_id, debit_account_id: from, credit_account_id: to, amount_minor: 101n })).toEqual({
      type: 'contradiction',
    });
    expect(await listEntries(database.pool, to, { before: null, limit: 10 })).toMatchObject([
      { amount_minor: 100n, balance_minor: 100n },
    ]);
  });

  it('refuses for a reason, and for good', async () => {
    const [from, to, yen] = [await open('internal'), await open('internal'), await open('internal', 'JPY')];
    const external = await open('external');
    const refusal = async (more: Partial<TransferRequest>) => {
      const result = await transfer({ debit_account_id: from, credit_account_id: to, ...more });
      return result.type === 'refused' ? result.refusal : result.type;
    };
    expect(await refusal({})).toBe('insufficient_funds');
    expect(await refusal({ credit_account_id: from })).toBe('same_account');
    expect(await refusal({ credit_account_id: uuidv7() })).toBe('account_not_found');
    expect(await refusal({ client_id: 'another' })).toBe('account_not_found');
    expect(await refusal({ credit_account_id: yen })).toBe('currency_mismatch');
    expect(await refusal({ debit_account_id: external, amount_minor: 9007199254740991n })).toBe('posted');
    expect(await refusal({ debit_account_id: external, amount_minor: 1n })).toBe('balance_limit');
  });

  it('holds its rules in the database, whoever writes', async () => {
    const [from, to] = [await open('external'), await open('internal')];
    await transfer({ debit_account_id: from, credit_account_id: to });
    const refused = (text: string) => expect(database.pool.query(text)).rejects.toThrow();
    await refused('update ledger_entry set amount_minor = 1');
    await refused('delete from ledger_entry');
    await refused(`update account set balance_minor = -1 where kind = 'internal'`);
    await refused(
      `insert into ledger_entry (account_id, sequence, transfer_id, amount_minor, balance_minor)
       select id, 99, (select transfer_id from transfer), 5, 5 from account where kind = 'internal'`,
    );
    // A lone entry: half a transfer.
    const lone = inTransaction(database.pool, async (tx) => {
      const transfer_id = uuidv7();
      await tx.query(
        `insert into transfer (transfer_id, client_id, debit_account_id, credit_account_id, amount_minor, currency, status)
         values ($1, 'shop', $2, $3, 5, 'EUR', 'posted')`,
        [transfer_id, from, to],
      );
      await tx.query(
        `insert into ledger_entry (account_id, sequence, transfer_id, amount_minor, balance_minor) values ($1, 50, $2, 5, 5)`,
        [to, transfer_id],
      );
    });
    await expect(lone).rejects.toThrow('do not sum to zero');
  });
});
