import { findPgBouncer } from '../../scripts/pgbouncer/program.js';
import { startPgBouncer } from '../../scripts/pgbouncer/pgbouncer.js';
import { say, type Context, type Section } from '../context.js';
import { table } from '../numbers.js';
import { compareWays, COMPARED_HEAD, comparedRow } from './compared.js';

const POOL_SIZE = 20;

/** What a PgBouncer in transaction mode costs: a process in between, and statements that are planned every time. */
export async function measurePgBouncer(context: Context): Promise<Section> {
  const title = 'Through PgBouncer in transaction mode';
  if (findPgBouncer() === null) {
    say('no PgBouncer here: left out (npx tsx scripts/pgbouncer/fetch.ts, on Debian)');
    return { title, goals: [], lines: ['Not measured: there was no PgBouncer on this machine.'] };
  }
  const { postgres } = context;
  await postgres.createDatabase('oncepay');
  const pooler = await startPgBouncer({ server_url: postgres.url('postgres'), pool_size: POOL_SIZE });
  try {
    const compared = await compareWays(context, [
      { name: 'directly', env: {} },
      {
        name: 'through PgBouncer, without prepared statements',
        env: { DATABASE_POOLER: 'transaction' },
        database_url: pooler.through(postgres.url('oncepay')),
      },
    ]);
    return { title, goals: [], lines: [`${pooler.version}.`, '', ...table(COMPARED_HEAD, compared.map(comparedRow))] };
  } finally {
    await pooler.stop();
  }
}
