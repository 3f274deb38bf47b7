import { loadSpec, say, type Context } from '../context.js';
import { Meter, type Used } from '../costs.js';
import { runLoad } from '../load/run-load.js';
import type { LoadResult } from '../load/spec.js';
import { decimal, median, spread, whole } from '../numbers.js';
import { startService } from '../service.js';

/** One way to run the service, in alternating rounds with the others. */
export interface Way {
  readonly name: string;
  readonly env: Readonly<Record<string, string>>;
  /** Where its database is; that of the bench's own PostgreSQL by default. */
  readonly database_url?: string;
}

export interface Compared {
  readonly way: Way;
  readonly loads: readonly LoadResult[];
  readonly used: readonly Used[];
}

/** Charges at the peak, one way after the other, as often as there are rounds, on emptied tables. */
export async function compareWays(context: Context, ways: readonly Way[]): Promise<Compared[]> {
  const { postgres, options } = context;
  const compared = ways.map((way) => ({ way, loads: [] as LoadResult[], used: [] as Used[] }));
  for (let round = 1; round <= options.rounds; round += 1) {
    for (const { way, loads, used } of compared) {
      const service = await startService({
        database_url: way.database_url ?? postgres.url('oncepay'),
        directory: context.directory,
        name: 'compared',
        env: way.env,
      });
      try {
        await postgres.truncate('oncepay');
        const meter = new Meter(postgres, service.pid);
        const load = await runLoad(loadSpec(context, service.url), { onMeasuring: meter.begin, onMeasured: meter.end });
        loads.push(load);
        used.push(await meter.used());
        say(`  ${way.name}: ${whole(load.per_s)}/s, p99 ${decimal(load.latency.p99_ms, 1)} ms`);
      } finally {
        await service.stop();
      }
    }
  }
  return compared;
}

/** A row of the table: charges per second, p99, processor time per charge of the service and of PostgreSQL. */
export function comparedRow({ way, loads, used }: Compared): string[] {
  const per_charge_us = (pick: (used: Used) => number): string =>
    whole(median(loads.map((load, round) => (pick(used[round] as Used) * 1e6) / load.completed)));
  return [
    way.name,
    spread(loads.map((load) => load.per_s)),
    spread(
      loads.map((load) => load.latency.p99_ms),
      (ms) => decimal(ms, 1),
    ),
    per_charge_us((one) => one.service_cpu_s),
    per_charge_us((one) => one.postgres_cpu_s),
  ];
}

export const COMPARED_HEAD = ['', 'charges/s', 'p99 ms', 'service, µs per charge', 'PostgreSQL, µs per charge'];
