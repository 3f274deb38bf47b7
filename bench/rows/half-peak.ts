import { loadSpec, say, type Context, type Section } from '../context.js';
import { runLoad } from '../load/run-load.js';
import { decimal, median, spread, table, whole } from '../numbers.js';
import { startService } from '../service.js';

const P99_MS = 25;
/** More than elsewhere: one visit of autovacuum or one whole collection of V8 makes the p99 of a round. */
const MORE_ROUNDS = 2;

/**
 * The latency that callers see while the service is busy but not swamped. Each round asks for half of what the service
 * could do just before: a machine that slowed down since the row "peak" would be asked for more than half.
 */
export async function measureHalfPeak(context: Context): Promise<Section> {
  const { postgres, options, directory } = context;
  await postgres.createDatabase('oncepay');
  const service = await startService({ database_url: postgres.url('oncepay'), directory, name: 'half-peak' });
  try {
    const rates = [];
    const results = [];
    for (let round = 1; round <= options.rounds + MORE_ROUNDS; round += 1) {
      await postgres.truncate('oncepay');
      const peak = await runLoad(loadSpec(context, service.url));
      const rate_per_s = peak.per_s / 2;
      await postgres.truncate('oncepay');
      const load = await runLoad(loadSpec(context, service.url, { rate_per_s }));
      rates.push(rate_per_s);
      results.push(load.latency);
      say(
        `  ${whole(rate_per_s)}/s: p50 ${decimal(load.latency.p50_ms, 1)} ms, p99 ${decimal(load.latency.p99_ms, 1)} ms`,
      );
    }
    const ms = (value: number): string => decimal(value, 1);
    const p99 = median(results.map((latency) => latency.p99_ms));
    return {
      title: `Latency at half of the peak: ${whole(median(rates))} charges per second`,
      goals: [
        {
          what: 'p99 of a charge at half of the peak rate',
          goal: `≤ ${P99_MS} ms`,
          measured: `**${ms(p99)} ms**`,
          met: p99 <= P99_MS,
        },
      ],
      lines: [
        `Charges fall due at a fixed rate and their latency counts from then, so that a stall is not left out. Medians of ${results.length} rounds, each at half of a peak measured just before it.`,
        '',
        ...table(
          ['', 'ms'],
          [
            ['charges per second', spread(rates)],
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
