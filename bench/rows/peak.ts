import { cpus } from 'node:os';
import { installReference, referenceVersions, startReference } from '../against/fastapi.js';
import { hasPgbench, resetFloor, runFloor } from '../against/floor.js';
import { loadSpec, say, type Context, type Goal, type Section } from '../context.js';
import { Meter, type Used } from '../costs.js';
import { countStatements } from '../count-statements.js';
import { runLoad } from '../load/run-load.js';
import type { LoadResult } from '../load/spec.js';
import { decimal, median, spread, table, whole } from '../numbers.js';
import { startService } from '../service.js';

const REPLAY_POOL = 20_000;
const CHARGES_PER_FLOOR = 1.5;
const CHARGES_PER_REFERENCE = 8;
const REPLAYS_PER_CHARGE = 2;

interface Measured {
  readonly load: LoadResult;
  readonly used: Used;
}

interface Rounds {
  /** By the number of pgbench's clients. */
  readonly floor: Map<number, number[]>;
  readonly charges: Measured[];
  readonly replays: LoadResult[];
  readonly reference: LoadResult[];
}

interface Against {
  readonly floor: boolean;
  /** Why the reference can't run, or null. */
  readonly no_reference: string | null;
}

/** Charges and replays at the peak, against pgbench and the plain way in Python, in alternating rounds. */
export async function measurePeak(context: Context): Promise<Section> {
  const { postgres, options } = context;
  const against: Against = { floor: await hasPgbench(), no_reference: await installReference() };
  if (!against.floor) say('no pgbench here: the floor is left out (Debian: apt-get install postgresql-contrib)');
  if (against.no_reference !== null) say(`the FastAPI reference is left out: ${against.no_reference}`);
  for (const name of ['floor', 'reference', 'oncepay']) await postgres.createDatabase(name);

  const rounds: Rounds = { floor: new Map(), charges: [], replays: [], reference: [] };
  for (let round = 1; round <= options.rounds; round += 1) {
    say(`round ${round} of ${options.rounds}`);
    if (against.floor) await floorRound(context, rounds);
    if (against.no_reference === null) await referenceRound(context, rounds);
    await serviceRound(context, rounds);
  }
  const statements = [await statementsPerCharge(context, options.connections), await statementsPerCharge(context, 1)];
  return describe(context, rounds, against, statements, await hotShares(context));
}

async function floorRound({ postgres, options }: Context, rounds: Rounds): Promise<void> {
  for (const clients of options.floor_clients) {
    await resetFloor(postgres.url('floor'));
    await postgres.admin.query('CHECKPOINT');
    const per_s = await runFloor(postgres.url('floor'), clients, options.measure_s);
    rounds.floor.set(clients, [...(rounds.floor.get(clients) ?? []), per_s]);
    say(`  pgbench, ${clients} clients: ${whole(per_s)}/s`);
  }
}

async function referenceRound(context: Context, rounds: Rounds): Promise<void> {
  const { postgres, directory } = context;
  const server = await startReference(postgres.url('reference'), cpus().length, directory);
  try {
    await postgres.truncate('reference');
    const load = await runLoad(loadSpec(context, server.url, { api_key: null }));
    rounds.reference.push(load);
    say(`  FastAPI: ${whole(load.per_s)}/s`);
  } finally {
    await server.stop();
  }
}

async function serviceRound(context: Context, rounds: Rounds): Promise<void> {
  const { postgres, directory } = context;
  const service = await startService({ database_url: postgres.url('oncepay'), directory, name: 'oncepay' });
  try {
    await postgres.truncate('oncepay');
    const meter = new Meter(postgres, service.pid);
    const load = await runLoad(loadSpec(context, service.url), { onMeasuring: meter.begin, onMeasured: meter.end });
    rounds.charges.push({ load, used: await meter.used() });
    say(`  charges: ${whole(load.per_s)}/s, p99 ${decimal(load.latency.p99_ms, 1)} ms`);
    const replay = await runLoad(loadSpec(context, service.url, { request: { kind: 'replay', pool: REPLAY_POOL } }));
    rounds.replays.push(replay);
    say(`  replays: ${whole(replay.per_s)}/s, p99 ${decimal(replay.latency.p99_ms, 1)} ms`);
  } finally {
    await service.stop();
  }
}

/** In a run of its own, since counting costs time. */
async function statementsPerCharge(context: Context, connections: number): Promise<number> {
  const { postgres, directory } = context;
  await countStatements(postgres.admin, true);
  const service = await startService({ database_url: postgres.url('oncepay'), directory, name: 'oncepay' });
  try {
    const meter = new Meter(postgres, service.pid);
    const spec = loadSpec(context, service.url, { connections, measure_s: 3 });
    const load = await runLoad(spec, { onMeasuring: meter.begin, onMeasured: meter.end });
    return (await meter.used()).statements / load.completed;
  } finally {
    await service.stop();
    await countStatements(postgres.admin, false);
  }
}

/** Share of the updates that touched no index, by table. */
async function hotShares({ postgres }: Context): Promise<string[][]> {
  const { rows } = await postgres.query(
    'oncepay',
    `SELECT relname AS name, n_tup_hot_upd::float8 / n_tup_upd AS share FROM pg_stat_user_tables
     WHERE n_tup_upd > 100 AND relname IN ('payment', 'operation', 'idempotency_record') ORDER BY relname`,
  );
  return rows.map((row) => [
    `updates of ${String(row.name)} without its indexes (HOT)`,
    `${whole(Number(row.share) * 100)} %`,
  ]);
}

function bestOfFloor(rounds: Rounds): { clients: number; values: readonly number[] } {
  const [best] = [...rounds.floor].sort(([, a], [, b]) => median(b) - median(a));
  return { clients: best?.[0] ?? 0, values: best?.[1] ?? [] };
}

function ratioGoal(what: string, base: number, value: number, at_least: number, note: string): Goal {
  const goal = `≥ ${at_least} ×`;
  if (base === 0) return { what, goal, measured: `not measured: ${note}`, met: null };
  const ratio = value / base;
  return {
    what,
    goal,
    measured: `**${decimal(ratio)} ×** (${whole(value)} against ${whole(base)})`,
    met: ratio >= at_least,
  };
}

async function describe(
  context: Context,
  rounds: Rounds,
  against: Against,
  statements: number[],
  hot: string[][],
): Promise<Section> {
  const floor = bestOfFloor(rounds);
  const charges = rounds.charges.map(({ load }) => load);
  const perS = (results: readonly LoadResult[]): number[] => results.map((result) => result.per_s);
  const [charges_per_s, replays_per_s] = [median(perS(charges)), median(perS(rounds.replays))];
  const loadRow = (name: string, results: readonly LoadResult[]): string[] => [
    name,
    spread(perS(results)),
    spread(
      results.map(({ latency }) => latency.p50_ms),
      (ms) => decimal(ms, 1),
    ),
    spread(
      results.map(({ latency }) => latency.p99_ms),
      (ms) => decimal(ms, 1),
    ),
    decimal(median(results.map((result) => result.generator_cpu))),
  ];
  const floorRows = [...rounds.floor].map(([clients, values]) => [
    `pgbench, ${clients} clients`,
    spread(values),
    '',
    '',
    '',
  ]);
  const versions = against.no_reference === null ? await referenceVersions() : '';
  const referenceRows =
    versions === '' ? [] : [loadRow(`FastAPI reference (${versions}), ${cpus().length} workers`, rounds.reference)];
  const perCharge = (pick: (used: Used) => number): number =>
    median(rounds.charges.map(({ used, load }) => pick(used) / load.completed));
  return {
    title: `Peak: ${context.options.connections} connections, every charge with a new key`,
    goals: [
      ratioGoal(
        'charges/s against pgbench, one row at a time',
        median(floor.values),
        charges_per_s,
        CHARGES_PER_FLOOR,
        'no pgbench here',
      ),
      ratioGoal(
        'charges/s against the FastAPI reference',
        median(perS(rounds.reference)),
        charges_per_s,
        CHARGES_PER_REFERENCE,
        'it could not be installed here',
      ),
      ratioGoal('replays/s against charges/s', charges_per_s, replays_per_s, REPLAYS_PER_CHARGE, ''),
    ],
    lines: [
      ...table(
        ['', 'per second', 'p50 ms', 'p99 ms', 'cores used by the load generator'],
        [loadRow('charges', charges), loadRow('replays', rounds.replays), ...floorRows, ...referenceRows],
      ),
      '',
      `Medians of ${context.options.rounds} alternating rounds of ${context.options.measure_s} s, in brackets the lowest and the highest.`,
      '',
      'What one charge costs:',
      '',
      ...table(
        ['', 'per charge'],
        [
          ['processor time of the service', `${whole(perCharge((used) => used.service_cpu_s * 1e6))} µs`],
          ['processor time of PostgreSQL', `${whole(perCharge((used) => used.postgres_cpu_s * 1e6))} µs`],
          ['WAL', `${whole(perCharge((used) => used.wal_bytes))} bytes`],
          [`statements, ${context.options.connections} connections`, decimal(statements[0] ?? 0)],
          ['statements, 1 connection', decimal(statements[1] ?? 0)],
          ...hot,
        ],
      ),
    ],
  };
}
