import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Pool } from 'pg';
import { z } from 'zod';
import { Account as AccountSchema, LedgerEntryList } from '../../contract/order-schemas.js';
import { queryErrors, validationFailed } from '../../contract/validation.js';
import { OncepayError } from '../../domain/errors.js';
import { formatAmount } from '../../domain/money.js';
import { type Account, findAccount, type LedgerEntry, listEntries } from '../../wallet/ledger.js';
import { documented } from '../openapi-route.js';
import { clientOf, parseId } from '../request.js';

const LIMIT_MAX = 100;
const LIMIT_DEFAULT = 20;

const ACCOUNT_ID = {
  id: { description: 'The account’s id.', example: '019b3c5e-7a10-7000-8000-000000000001', format: 'uuid' },
} as const;

const EntryListParameters = z
  .strictObject({
    limit: z
      .string({ error: 'must be given once' })
      .regex(/^(?:[1-9]\d?|100)$/, { error: `must be a number from 1 to ${LIMIT_MAX} in plain digits` })
      .meta({
        type: 'integer',
        minimum: 1,
        maximum: LIMIT_MAX,
        default: LIMIT_DEFAULT,
        description: 'How many entries a page has at most.',
        examples: ['20'],
      })
      .optional(),
    cursor: z
      .string({ error: 'must be given once' })
      .regex(/^[1-9]\d{0,8}$/, { error: 'is not a cursor of this list; take next_cursor as it came' })
      .meta({ description: '`next_cursor` of the page before.', examples: [] })
      .optional(),
  })
  .meta({ id: 'EntryListParameters', description: 'Paging of the entries of an account.' });

type Addressed = FastifyRequest<{ Params: { id: string } }>;

/** `GET /accounts/{id}` and its entries: the wallet, as `DebitAccount.v1` and `npm run wallet` made it. */
export async function accountRoutes(app: FastifyInstance, { pool }: { pool: Pool }): Promise<void> {
  app.get<{ Params: { id: string } }>(
    '/accounts/:id',
    {
      config: documented({
        scope: 'payments:read',
        summary: 'An account of the wallet',
        operation_id: 'getAccount',
        tag: 'Orders',
        path_parameters: ACCOUNT_ID,
        answers: { 200: { description: 'The account as it is now.', schema: AccountSchema } },
        problems: ['not_found'],
      }),
    },
    async (request) => accountView(await accountOf(pool, request)),
  );

  app.get<{ Params: { id: string } }>(
    '/accounts/:id/entries',
    {
      config: documented({
        scope: 'payments:read',
        summary: 'The entries of an account, newest first',
        operation_id: 'listAccountEntries',
        tag: 'Orders',
        path_parameters: ACCOUNT_ID,
        query: EntryListParameters,
        answers: { 200: { description: 'A page of entries.', schema: LedgerEntryList } },
        problems: ['not_found'],
      }),
    },
    async (request) => {
      const parameters = EntryListParameters.safeParse(request.query);
      if (!parameters.success) throw validationFailed(queryErrors(parameters.error));
      const { cursor, limit } = parameters.data;
      const account = await accountOf(pool, request);
      const page = { before: cursor === undefined ? null : Number(cursor), limit: Number(limit ?? LIMIT_DEFAULT) };
      const entries = await listEntries(pool, account.id, page);
      const last = entries.at(-1);
      // Sequences have no gaps: what stands below the last one shown is there.
      const next_cursor = last === undefined || last.sequence === 1 ? null : String(last.sequence);
      return { data: entries.map((entry) => entryView(entry, account.currency)), next_cursor };
    },
  );
}

/** @throws OncepayError not_found, also for another client's */
async function accountOf(pool: Pool, request: Addressed): Promise<Account> {
  const client = clientOf(request);
  const id = parseId(request.params.id);
  const account = id === null ? null : await findAccount(pool, id, client.scopes.includes('admin') ? null : client.id);
  if (account === null) throw new OncepayError('not_found', 'There is no account of this id.');
  return account;
}

function accountView(account: Account) {
  return {
    id: account.id,
    kind: account.kind,
    name: account.name,
    currency: account.currency,
    balance: formatAmount(account.balance_minor, account.currency),
    entry_count: account.version,
    created_at: account.created_at.toISOString(),
    updated_at: account.updated_at.toISOString(),
  };
}

function entryView(entry: LedgerEntry, currency: string) {
  return {
    sequence: entry.sequence,
    transfer_id: entry.transfer_id,
    amount: formatAmount(entry.amount_minor, currency),
    balance: formatAmount(entry.balance_minor, currency),
    created_at: entry.created_at.toISOString(),
  };
}
