import { loadSpec, say, type Context, type Section } from '../context.js';
import { loadCharges } from '../loader.js';
import { runLoad } from '../load/run-load.js';
import type { LoadResult } from '../load/spec.js';
import { decimal, median, spread, table, whole } from '../numbers.js';
import { plansOf } from '../plans.js';
import { API_KEY, type RunningService, startService } from '../service.js';

const AT_LEAST = 0.8;
/** Younger than what retention deletes, whatever the time of day. */
const SPAN_H = 48;

/** What `GET` is asked for, by name. Some need a page to begin from, or a payment. */
async function listPaths(service: RunningService): Promise<Record<string, string>> {
  const middle = `created_to=${new Date(Date.now() - (SPAN_H / 2) * 60 * 60_000).toISOString()}`;
  const answer = await fetch(`${service.url}/payments?${middle}`, { headers: { authorization: `Bearer ${API_KEY}` } });
  const page = (await answer.json()) as { data: { id: string }[]; next_cursor: string | null };
  return {
    'newest 20 payments': '/payments',
    'newest 100 payments': '/payments?limit=100',
    'from the middle on': `/payments?${middle}`,
    'the page after it': `/payments?${middle}&cursor=${page.next_cursor ?? ''}`,
    'by status': '/payments?status=succeeded',
    'by a status that none is in': '/payments?status=canceled',
    'by status processing, none there': '/payments?status=processing',
    'by customer': '/payments?customer_id=customer-4242',
    'by external_payment_id, none there': '/payments?external_payment_id=nobody-has-this',
    'by provider': '/payments?provider=instant',
    'by provider, none there': '/payments?provider=never-used',
    'by customer, provider and status, from the middle on': `/payments?customer_id=customer-4242&provider=instant&status=succeeded&${middle}`,
    'the timeline of a payment': `/payments/${page.data[0]?.id ?? ''}/timeline`,
  };
}

const TABLE_SIZES = `
SELECT relname AS name, pg_size_pretty(pg_table_size(relid)) AS table_size, pg_size_pretty(pg_indexes_size(relid)) AS index_size
FROM pg_stat_user_tables WHERE relname IN ('payment', 'operation', 'idempotency_record') ORDER BY relname`;

async function chargesOn(context: Context, database: string): Promise<LoadResult> {
  const { postgres, directory } = context;
  const service = await startService({ database_url: postgres.url(database), directory, name: database });
  try {
    await postgres.admin.query('CHECKPOINT');
    const load = await runLoad(loadSpec(context, service.url));
    say(`  ${database}: ${whole(load.per_s)}/s, p99 ${decimal(load.latency.p99_ms, 1)} ms`);
    return load;
  } finally {
    await service.stop();
  }
}

interface Lists {
  readonly times: string[][];
  readonly plans: string[][];
}

/** What the lists take, and after that how they are read. */
async function lists(context: Context, database: string): Promise<Lists> {
  const { postgres, directory } = context;
  const service = await startService({ database_url: postgres.url(database), directory, name: database });
  const measure = async (): Promise<[Record<string, string>, string[][]]> => {
    const paths = await listPaths(service);
    const times: string[][] = [];
    for (const [name, path] of Object.entries(paths)) times.push([name, ...(await timesOf(context, service, path))]);
    return [paths, times];
  };
  const [paths, times] = await measure().finally(() => service.stop());
  const plans = [...(await plansOf(context, database, paths))].flatMap(([name, statements]) =>
    statements.map(({ steps, rows, buffers }) => [name, steps, whole(rows), whole(buffers)]),
  );
  return { times, plans };
}

async function timesOf(context: Context, service: RunningService, path: string): Promise<string[]> {
  const spec = loadSpec(context, service.url, {
    request: { kind: 'get', path },
    connections: 1,
    warmup_s: 1,
    measure_s: 2,
  });
  return runLoad(spec).then(
    ({ latency }) => [decimal(latency.p50_ms, 1), decimal(latency.p99_ms, 1)],
    (error: unknown) => [error instanceof Error ? error.message : 'failed', ''],
  );
}

/** Charges with full tables against charges with empty ones, in alternating rounds; and what the lists take then. */
export async function measureGrowth(context: Context): Promise<Section> {
  const { postgres, options, directory } = context;
  for (const name of ['empty', 'grown']) {
    await postgres.createDatabase(name);
    const service = await startService({ database_url: postgres.url(name), directory, name });
    await service.stop(); // it has migrated
  }
  const begun_at = Date.now();
  await loadCharges(context, 'grown', { rows: options.growth_rows, tables: 'all', age_h: 0, span_h: SPAN_H });
  const load_s = (Date.now() - begun_at) / 1000;
  const sizes = await postgres.query('grown', TABLE_SIZES);

  const empty: LoadResult[] = [];
  const grown: LoadResult[] = [];
  for (let round = 1; round <= options.rounds; round += 1) {
    await postgres.truncate('empty');
    empty.push(await chargesOn(context, 'empty'));
    grown.push(await chargesOn(context, 'grown'));
  }
  const { times, plans } = await lists(context, 'grown');
  await postgres.createDatabase('grown'); // gives the disk back
  const perS = (results: readonly LoadResult[]): number[] => results.map((result) => result.per_s);
  const p99 = (results: readonly LoadResult[]): number[] => results.map((result) => result.latency.p99_ms);
  const ratio = median(perS(grown)) / median(perS(empty));
  const row = (name: string, results: LoadResult[]): string[] => [
    name,
    spread(perS(results)),
    spread(p99(results), (ms) => decimal(ms, 1)),
  ];
  return {
    title: `Growth: ${whole(options.growth_rows)} payments, operations and records in the tables`,
    goals: [
      {
        what: `charges/s with ${whole(options.growth_rows)} records and payments, against empty tables`,
        goal: `≥ ${AT_LEAST} ×`,
        measured: `**${decimal(ratio)} ×**`,
        met: ratio >= AT_LEAST,
      },
    ],
    lines: [
      ...table(['', 'charges/s', 'p99 ms'], [row('empty', empty), row('full', grown)]),
      '',
      `Loading took ${whole(load_s)} s. Sizes afterwards:`,
      '',
      ...table(
        ['', 'table', 'indexes'],
        sizes.rows.map((size) => [String(size.name), String(size.table_size), String(size.index_size)]),
      ),
      '',
      'Lists on the full tables, one caller:',
      '',
      ...table(['list', 'p50 ms', 'p99 ms'], times),
      '',
      'How PostgreSQL reads them, one request each after all that was timed, as auto_explain saw it in the session of the service:',
      '',
      ...table(['list', 'plan, the last step first', 'rows looked at', 'buffers'], plans, 2),
    ],
  };
}
