import { parseArgs } from 'node:util';

export const ROWS = [
  'peak',
  'half-peak',
  'start-up',
  'processes',
  'pgbouncer',
  'growth',
  'sweep',
  'week',
  'memory',
] as const;
export type Row = (typeof ROWS)[number];

export interface Options {
  readonly only: readonly Row[];
  /** Alternating rounds; every number that is compared is their median. */
  readonly rounds: number;
  /** Measured time of each run, after the warm-up. */
  readonly measure_s: number;
  readonly warmup_s: number;
  readonly connections: number;
  /** Client counts that pgbench is tried with; its best counts. */
  readonly floor_clients: readonly number[];
  /** Payments, with their operations and records, in the tables for the row "growth". */
  readonly growth_rows: number;
  /** Expired records that are swept under load. */
  readonly sweep_rows: number;
  /** Records, and events, of each of the simulated days of the row "week". */
  readonly day_rows: number;
  readonly memory_minutes: number;
  /** Where to keep the database and logs while it runs; removed at the end. */
  readonly directory: string | null;
  readonly results: string;
}

const HELP = `npm run bench -- [options]
  --quick              a look in about two minutes: short runs, small tables
  --only a,b           of ${ROWS.join(', ')}
  --rounds N           alternating rounds (3)
  --seconds N          measured time of a run (15)
  --connections N      of the load (64)
  --growth N           payments, operations and records loaded for growth (10000000)
  --sweep N            expired records swept under load (1000000)
  --day N              records a day in two simulated weeks (40000)
  --memory-minutes N   time at peak for memory (10)
  --directory DIR      where database and logs go meanwhile (a temporary folder)
  --results FILE       where the numbers go (bench/results.md)`;

function whole(text: string | undefined, otherwise: number, name: string): number {
  if (text === undefined) return otherwise;
  if (!/^[1-9]\d*$/.test(text)) throw new Error(`--${name}: a whole number above zero is expected, not "${text}"`);
  return Number(text);
}

function rowsOf(text: string | undefined): readonly Row[] {
  if (text === undefined) return ROWS;
  const names = text.split(',');
  const unknown = names.filter((name) => !ROWS.some((row) => row === name));
  if (unknown.length > 0) throw new Error(`--only: unknown: ${unknown.join(', ')}; there are ${ROWS.join(', ')}`);
  return ROWS.filter((row) => names.includes(row));
}

/** @returns null where help was asked for (and printed). */
export function parseOptions(args: readonly string[]): Options | null {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
      only: text,
      rounds: text,
      seconds: text,
      connections: text,
      growth: text,
      sweep: text,
      day: text,
      'memory-minutes': text,
      directory: text,
      results: text,
    },
  });
  if (values.help) {
    console.log(HELP);
    return null;
  }
  const quick = values.quick;
  return {
    only: rowsOf(values.only),
    rounds: whole(values.rounds, 3, 'rounds'),
    measure_s: whole(values.seconds, quick ? 3 : 15, 'seconds'),
    warmup_s: quick ? 1 : 3,
    connections: whole(values.connections, 64, 'connections'),
    floor_clients: quick ? [8, 32] : [8, 16, 32, 64],
    growth_rows: whole(values.growth, quick ? 100_000 : 10_000_000, 'growth'),
    sweep_rows: whole(values.sweep, quick ? 30_000 : 1_000_000, 'sweep'),
    day_rows: whole(values.day, quick ? 5_000 : 40_000, 'day'),
    memory_minutes: whole(values['memory-minutes'], quick ? 1 : 10, 'memory-minutes'),
    directory: values.directory ?? null,
    results: values.results ?? new URL('./results.md', import.meta.url).pathname,
  };
}
