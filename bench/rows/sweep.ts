import { loadSpec, say, type Context, type Section } from '../context.js';
import { loadCharges } from '../loader.js';
import { runLoad } from '../load/run-load.js';
import type { LoadResult } from '../load/spec.js';
import { decimal, median, spread, table, whole } from '../numbers.js';
import { start, startService } from '../service.js';

const AT_MOST = 1.5;
/** The youngest of them is well past the 72 hours that answers are kept. */
const AGE_H = 80;
const SPAN_H = 48;

/** `npm run retention` beside the service. Seconds that it took. */
export function sweep({ postgres, directory }: Context): Promise<number> {
  const begun_at = Date.now();
  const child = start({
    program: process.execPath,
    args: ['dist/jobs/retention-main.js'],
    env: { DATABASE_URL: postgres.url('oncepay'), PROVIDERS: 'instant' },
    log: `${directory}/sweep.log`,
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => {
      if (code === 0) resolve((Date.now() - begun_at) / 1000);
      else reject(new Error(`retention ended with code ${code}, see ${directory}/sweep.log`));
    });
  });
}

interface Round {
  readonly without: LoadResult;
  readonly during: LoadResult;
  readonly sweep_s: number;
}

async function oneRound(context: Context, url: string, rate_per_s: number): Promise<Round> {
  const { postgres, options } = context;
  await postgres.truncate('oncepay');
  await loadCharges(context, 'oncepay', {
    rows: options.sweep_rows,
    tables: 'records only',
    age_h: AGE_H,
    span_h: SPAN_H,
  });
  const without = await runLoad(loadSpec(context, url, { rate_per_s }));
  // Begun with the warm-up, so that what is measured is the sweep and not the start of another process.
  const sweeping = sweep(context);
  const during = await runLoad(loadSpec(context, url, { rate_per_s }));
  const measured_at = Date.now();
  const sweep_s = await sweeping;
  if (Date.now() - measured_at < 500) say('  the sweep may have ended before the measuring did: take more rows');
  const left = await postgres.query(
    'oncepay',
    'SELECT count(*) AS count FROM idempotency_record WHERE expires_at < clock_timestamp()',
  );
  if (Number(left.rows[0]?.count) > 0) throw new Error(`the sweep left ${String(left.rows[0]?.count)} expired records`);
  say(
    `  p99 ${decimal(without.latency.p99_ms, 1)} ms without, ${decimal(during.latency.p99_ms, 1)} ms during the sweep, which took ${whole(sweep_s)} s`,
  );
  return { without, during, sweep_s };
}

/** Expired records are deleted while charges come in at half of the peak rate. */
export async function measureSweep(context: Context): Promise<Section> {
  const { postgres, options, directory } = context;
  await postgres.createDatabase('oncepay');
  const service = await startService({ database_url: postgres.url('oncepay'), directory, name: 'sweep' });
  try {
    const rate_per_s = (await runLoad(loadSpec(context, service.url))).per_s / 2;
    const rounds: Round[] = [];
    for (let round = 1; round <= options.rounds; round += 1)
      rounds.push(await oneRound(context, service.url, rate_per_s));
    const p99 = (pick: (round: Round) => LoadResult): number[] => rounds.map((round) => pick(round).latency.p99_ms);
    const [without, during] = [p99((round) => round.without), p99((round) => round.during)];
    const ratio = median(during) / median(without);
    const ms = (value: number): string => decimal(value, 1);
    return {
      title: `Sweep of ${whole(options.sweep_rows)} expired records at ${whole(rate_per_s)} charges per second`,
      goals: [
        {
          what: `p99 during a sweep of ${whole(options.sweep_rows)} expired records, against without`,
          goal: `≤ ${AT_MOST} ×`,
          measured: `**${decimal(ratio)} ×** (${ms(median(during))} against ${ms(median(without))} ms)`,
          met: ratio <= AT_MOST,
        },
      ],
      lines: table(
        ['', ''],
        [
          ['p99 ms without', spread(without, ms)],
          ['p99 ms during', spread(during, ms)],
          ['the sweep took, seconds', spread(rounds.map((round) => round.sweep_s))],
        ],
      ),
    };
  } finally {
    await service.stop();
  }
}
