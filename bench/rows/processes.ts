import { cpus } from 'node:os';
import type { Context, Section } from '../context.js';
import { table } from '../numbers.js';
import { compareWays, COMPARED_HEAD, comparedRow } from './compared.js';

/** One and two processes behind one port (docs/processes.md), sharing this machine with PostgreSQL and the load. */
export async function measureProcesses(context: Context): Promise<Section> {
  await context.postgres.createDatabase('oncepay');
  const compared = await compareWays(context, [
    { name: '1 process', env: { PROCESSES: '1' } },
    { name: '2 processes', env: { PROCESSES: '2' } },
  ]);
  return {
    title: 'Several processes',
    goals: [],
    lines: [
      `On ${cpus().length} cores that PostgreSQL and the load generator use as well: what a second process adds where the first has a core to itself needs a larger machine.`,
      '',
      ...table(COMPARED_HEAD, compared.map(comparedRow)),
    ],
  };
}
