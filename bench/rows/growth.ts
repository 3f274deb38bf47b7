import { loadSpec, say, type Context, type Section } from '../context.js';
import { loadCharges } from '../loader.js';
import { runLoad } from '../load/run-load.js';
import type { LoadResult } from '../load/spec.js';
import { decimal, median, spread, table, whole } from '../numbers.js';
import { startService } from '../service.js';

const AT_LEAST = 0.8;
/** Younger than what retention deletes, whatever the time of day. */
const SPAN_H = 48;

const LISTS = {
  'newest 20 payments': '/payments',
  'newest 100 payments': '/payments?limit=100',
  'by status': '/payments?status=succeeded',
  'by customer': '/payments?customer_id=customer-4242',
  'by external_payment_id, none there': '/payments?external_payment_id=nobody-has-this',
  'by provider': '/payments?provider=instant',
} as const;

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

async function lists(context: Context, database: string): Promise<string[][]> {
  const { postgres, directory } = context;
  const service = await startService({ database_url: postgres.url(database), directory, name: database });
  const rows: string[][] = [];
  try {
    for (const [name, path] of Object.entries(LISTS)) {
      const spec = loadSpec(context, service.url, {
        request: { kind: 'get', path },
        connections: 1,
        warmup_s: 1,
        measure_s: 2,
      });
      const row = await runLoad(spec).then(
        ({ latency }) => [decimal(latency.p50_ms, 1), decimal(latency.p99_ms, 1)],
        (error: unknown) => [error instanceof Error ? error.message : 'failed', ''],
      );
      rows.push([name, ...row]);
    }
  } finally {
    await service.stop();
  }
  return rows;
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
  const list_rows = await lists(context, 'grown');
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
      ...table(['GET /payments', 'p50 ms', 'p99 ms'], list_rows),
    ],
  };
}
