import { loadSpec, say, type Context, type Section } from '../context.js';
import { runLoad } from '../load/run-load.js';
import { decimal, median, spread, table, whole } from '../numbers.js';
import { startService } from '../service.js';

const P99_MS = 25;
/** More than elsewhere: one visit of autovacuum or one whole collection of V8 makes the p99 of a round. */
const MORE_ROUNDS = 2;

/** Charges per second at peak: what the row "peak" found, otherwise a short run against the given service. */
export async function peakOf(context: Context, url: string): Promise<number> {
  context.peak_per_s ??= (await runLoad(loadSpec(context, url))).per_s;
  return context.peak_per_s;
}

/** The latency that callers see while the service is busy but not swamped. */
export async function measureHalfPeak(context: Context): Promise<Section> {
  const { postgres, options, directory } = context;
  await postgres.createDatabase('oncepay');
  const service = await startService({ database_url: postgres.url('oncepay'), directory, name: 'half-peak' });
  try {
    const rate_per_s = (await peakOf(context, service.url)) / 2;
    // A service that has run for a while: in its first seconds code is compiled and the heap grows.
    await runLoad(loadSpec(context, service.url, { rate_per_s }));
    const results = [];
    for (let round = 1; round <= options.rounds + MORE_ROUNDS; round += 1) {
      await postgres.truncate('oncepay');
      await postgres.admin.query('CHECKPOINT');
      const load = await runLoad(loadSpec(context, service.url, { rate_per_s }));
      results.push(load.latency);
      say(
        `  ${whole(rate_per_s)}/s: p50 ${decimal(load.latency.p50_ms, 1)} ms, p99 ${decimal(load.latency.p99_ms, 1)} ms`,
      );
    }
    const ms = (value: number): string => decimal(value, 1);
    const p99 = median(results.map((latency) => latency.p99_ms));
    return {
      title: `Latency at half of the peak: ${whole(rate_per_s)} charges per second`,
      goals: [
        {
          what: 'p99 of a charge at half of the peak rate',
          goal: `≤ ${P99_MS} ms`,
          measured: `**${ms(p99)} ms**`,
          met: p99 <= P99_MS,
        },
      ],
      lines: [
        `Charges fall due at a fixed rate and their latency counts from then, so that a stall is not left out. Medians of ${results.length} rounds, after one that is not counted.`,
        '',
        ...table(
          ['', 'ms'],
          [
            [
              'p50',
              spread(
                results.map((latency) => latency.p50_ms),
                ms,
              ),
            ],
            [
              'p90',
              spread(
                results.map((latency) => latency.p90_ms),
                ms,
              ),
            ],
            [
              'p99',
              spread(
                results.map((latency) => latency.p99_ms),
                ms,
              ),
            ],
            [
              'slowest',
              spread(
                results.map((latency) => latency.max_ms),
                ms,
              ),
            ],
          ],
        ),
      ],
    };
  } finally {
    await service.stop();
  }
}
