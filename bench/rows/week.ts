import { setTimeout as wait } from 'node:timers/promises';
import { say, type Context, type Section } from '../context.js';
import { table, whole } from '../numbers.js';
import { startService } from '../service.js';
import { sweep } from './sweep.js';

/** Answers are kept for three days, marks of events for seven: after that the tables must have found their size. */
const DAYS = 14;
const RECORDS_KEPT_DAYS = 3;
const EVENTS_KEPT_DAYS = 7;
const EVENTS_KEPT_H = 168;
/** A day of the simulation, in real time: a day is swept at its end, while the next is written, with time left over. */
const DAY_S = 30;
const STEP_ROWS = 1000;
/** Largest over the last days against the first day that retention had something to do on. */
const FLAT_WITHIN = 0.15;
/** The sweep looks at ids of this age only; the answers themselves expire by the simulated days. */
const OLD_H = 24 * 30;

/**
 * Records as a charge leaves them: inserted short, then answered in place. They expire when the simulated days have
 * passed, by the database's own clock, so that the sweep under test is the real one.
 */
const RESERVE = `
INSERT INTO idempotency_record (client_id, key, kind, command_hash, state, lease_token, lease_until, payment_id, operation_id, success_status)
SELECT 'default', gen_random_uuid()::text, 'charge', sha256(convert_to(n::text, 'UTF8')), 'in_progress', gen_random_uuid(), clock_timestamp(),
       gen_random_uuid(), (lpad(to_hex(((extract(epoch FROM clock_timestamp()) - $3::int * 3600) * 1000)::bigint), 12, '0')
                           || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid, 201
FROM generate_series($1::int, $2::int) AS n RETURNING key`;
const ANSWER = `
UPDATE idempotency_record SET state = 'done', http_status = 201, body = repeat('x', 650), lease_token = NULL, lease_until = NULL,
       attempts_finished = 1, answered_at = clock_timestamp(), expires_at = $1
WHERE client_id = 'default' AND key = ANY ($2)`;
const MARK = `
INSERT INTO processed_event (consumer_name, event_id, processed_at)
SELECT 'bench', gen_random_uuid()::text, $3::timestamptz FROM generate_series($1::int, $2::int)`;
const SIZES = `
SELECT pg_table_size('idempotency_record')::int8 AS records, pg_indexes_size('idempotency_record')::int8 AS record_indexes,
       pg_table_size('processed_event')::int8 AS events, pg_indexes_size('processed_event')::int8 AS event_indexes`;

type Sizes = Readonly<Record<'records' | 'record_indexes' | 'events' | 'event_indexes', number>>;

async function writeDay({ postgres, options }: Context, expires_at: Date, processed_at: Date): Promise<void> {
  for (let from = 1; from <= options.day_rows; from += STEP_ROWS) {
    const to = Math.min(from + STEP_ROWS - 1, options.day_rows);
    const { rows } = await postgres.query('oncepay', RESERVE, [from, to, OLD_H]);
    await postgres.query('oncepay', ANSWER, [expires_at, rows.map((row) => row.key)]);
    await postgres.query('oncepay', MARK, [from, to, processed_at]);
  }
}

async function sizesOf({ postgres }: Context): Promise<Sizes> {
  const { rows } = await postgres.query('oncepay', SIZES);
  return Object.fromEntries(Object.entries(rows[0] ?? {}).map(([name, bytes]) => [name, Number(bytes)])) as Sizes;
}

/** Two weeks of retention with autovacuum as the migrations set it: whether tables and indexes find a size and keep it. */
export async function measureWeek(context: Context): Promise<Section> {
  const { postgres, options, directory } = context;
  await postgres.createDatabase('oncepay');
  await startService({ database_url: postgres.url('oncepay'), directory, name: 'week' }).then((one) => one.stop());
  // The days are shorter, so autovacuum looks as much more often as they are.
  await postgres.admin.query(`ALTER SYSTEM SET autovacuum_naptime = '1s'`);
  await postgres.admin.query('SELECT pg_reload_conf()');
  const begun_ms = Date.now();
  const after = (days: number): Date => new Date(begun_ms + days * DAY_S * 1000);
  const sizes: Sizes[] = [];
  try {
    for (let day = 0; day < DAYS; day += 1) {
      const marked = new Date(after(day + EVENTS_KEPT_DAYS).getTime() - EVENTS_KEPT_H * 3_600_000);
      await writeDay(context, after(day + RECORDS_KEPT_DAYS), marked);
      const left_ms = after(day + 1).getTime() - Date.now();
      // Otherwise less than three days' records would be there, and the sizes would say nothing.
      if (left_ms < 0) throw new Error(`a simulated day of ${DAY_S} s is too short for its rows here: lower --day`);
      await wait(left_ms);
      await sweep(context);
      sizes.push(await sizesOf(context));
      say(`  day ${day + 1}: ${mib(sizes.at(-1)?.records ?? 0)} MiB of records`);
    }
  } finally {
    await postgres.admin.query('ALTER SYSTEM RESET autovacuum_naptime');
    await postgres.admin.query('SELECT pg_reload_conf()');
  }
  return describe(options.day_rows, sizes);
}

const mib = (bytes: number): string => whole(bytes / 1024 / 1024);

function describe(day_rows: number, sizes: readonly Sizes[]): Section {
  const names = ['records', 'record_indexes', 'events', 'event_indexes'] as const;
  const growth = names.map((name) => {
    const kept_days = name.startsWith('record') ? RECORDS_KEPT_DAYS : EVENTS_KEPT_DAYS;
    const full = sizes[kept_days]?.[name] ?? 0;
    return Math.max(...sizes.slice(kept_days + 1).map((size) => size[name])) / full - 1;
  });
  const most = Math.max(...growth);
  return {
    title: `Two simulated weeks of retention, ${whole(day_rows)} records and as many events a day`,
    goals: [
      {
        what: 'tables and indexes after a simulated week of retention',
        goal: 'flat',
        measured: `**${whole(most * 100)} %** growth of the one that grew most, once retention deletes as much as comes`,
        met: most <= FLAT_WITHIN,
      },
    ],
    lines: [
      `Answers are kept for ${RECORDS_KEPT_DAYS} days, marks of events for ${EVENTS_KEPT_DAYS}; a day takes ${DAY_S} s. MiB after each day's sweep:`,
      '',
      ...table(
        ['day', 'idempotency_record', 'its indexes', 'processed_event', 'its indexes'],
        sizes.map((size, day) => [String(day + 1), ...names.map((name) => mib(size[name]))]),
      ),
    ],
  };
}
