import { parseArgs } from 'node:util';
import { newId } from '../domain/id.js';
import { findDatabase } from '../clients/find-database.js';
import { readConfig } from '../config.js';
import { openPool } from '../database/database.js';
import { inTransaction } from '../database/transaction.js';
import { AmountError, currencyDigits, formatAmount, parseAmount } from '../domain/money.js';
import { openAccount, postTransfer } from '../wallet/ledger.js';

const USAGE = `The wallet's accounts:

  npm run wallet -- open --client default --currency EUR [--kind external] [--name 'Ada']
      opens an account and prints its id; an external one is where money comes from and goes to
  npm run wallet -- transfer --client default --from ID --to ID --amount 10.00 --currency EUR [--id ID]
      moves money once for its --id (made and printed where it is left out)`;

class UsageError extends Error {}

const OPTIONS = {
  client: { type: 'string' },
  currency: { type: 'string' },
  kind: { type: 'string', default: 'internal' },
  name: { type: 'string', default: '' },
  from: { type: 'string' },
  to: { type: 'string' },
  amount: { type: 'string' },
  id: { type: 'string' },
} as const;

/** `npm run wallet`. Ends with 2 for what it does not understand, with 1 for a transfer that was refused. */
async function main(args: readonly string[]): Promise<number> {
  const { positionals, values } = parseArgs({ args: [...args], allowPositionals: true, options: OPTIONS });
  const need = (name: 'client' | 'currency' | 'from' | 'to' | 'amount'): string => {
    const value = values[name];
    if (value === undefined || value === '') throw new UsageError(`--${name} is needed.`);
    return value;
  };
  const [command] = positionals;
  if (command !== 'open' && command !== 'transfer') throw new UsageError('Say what: open or transfer.');
  const [client_id, currency] = [need('client'), need('currency')];
  if (currencyDigits(currency) === undefined) throw new UsageError(`${currency} is not a currency of ISO 4217.`);
  const { kind } = values;
  if (kind !== 'internal' && kind !== 'external') throw new UsageError('--kind is internal or external.');
  const database = await findDatabase(readConfig(), process.cwd());
  const pool = openPool(database.url, { pool_size: 1, pooler: database.pooler });
  try {
    if (command === 'open') {
      const account = await openAccount(pool, { id: newId(), client_id, kind, name: values.name, currency });
      console.log(account.id);
      return 0;
    }
    const request = {
      transfer_id: values.id ?? newId(),
      client_id,
      debit_account_id: need('from'),
      credit_account_id: need('to'),
      amount_minor: parseAmount(need('amount'), currency),
      currency,
      saga_id: null,
      step_name: null,
    };
    const result = await inTransaction(pool, (tx) => postTransfer(tx, request));
    switch (result.type) {
      case 'posted':
        console.log(
          `${request.transfer_id} posted; left: ${formatAmount(result.debited.balance_minor, currency)} ${currency}`,
        );
        return 0;
      case 'known':
        console.log(`${request.transfer_id} was decided before; nothing was done.`);
        return 0;
      case 'refused':
        console.error(`${request.transfer_id} is refused: ${result.refusal}`);
        return 1;
      case 'contradiction':
        console.error(`${request.transfer_id} stands for another transfer.`);
        return 1;
    }
  } finally {
    await pool.end();
    await database.close();
  }
}

main(process.argv.slice(2)).then(
  (code) => (process.exitCode = code),
  (error: unknown) => {
    const isUsage =
      error instanceof UsageError || error instanceof AmountError || (error instanceof TypeError && 'code' in error);
    console.error(error instanceof Error ? error.message : error);
    if (isUsage) console.error(`\n${USAGE}`);
    process.exitCode = isUsage ? 2 : 1;
  },
);
