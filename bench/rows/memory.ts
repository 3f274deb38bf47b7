import { loadSpec, say, type Context, type Section } from '../context.js';
import { runLoad } from '../load/run-load.js';
import { median, table, whole } from '../numbers.js';
import { residentMiB } from '../process-stats.js';
import { startService } from '../service.js';

const LIMIT_MIB = 300;
/** Growth from the second to the last third of the time that still counts as flat. */
const FLAT_WITHIN = 0.1;
const SAMPLES_PER_MINUTE = 12;

export async function measureMemory(context: Context): Promise<Section> {
  const { postgres, options, directory } = context;
  await postgres.createDatabase('oncepay');
  const service = await startService({ database_url: postgres.url('oncepay'), directory, name: 'memory' });
  const samples: number[] = [];
  const sampling = setInterval(() => samples.push(residentMiB(service.pid)), 60_000 / SAMPLES_PER_MINUTE);
  try {
    const at_start = residentMiB(service.pid);
    const load = await runLoad(loadSpec(context, service.url, { measure_s: options.memory_minutes * 60 }));
    const third = Math.floor(samples.length / 3);
    const middle = median(samples.slice(third, 2 * third));
    const last = median(samples.slice(2 * third));
    const highest = Math.max(...samples);
    const flat = last <= middle * (1 + FLAT_WITHIN);
    say(`  ${whole(highest)} MiB at the highest, ${flat ? 'flat' : 'growing'}`);
    return {
      title: `Memory over ${options.memory_minutes} minutes at peak`,
      goals: [
        {
          what: `memory of the service after ${options.memory_minutes} minutes at peak`,
          goal: `≤ ${LIMIT_MIB} MiB, flat`,
          measured: `**${whole(highest)} MiB** at the highest, ${flat ? 'flat' : 'growing'}`,
          met: highest <= LIMIT_MIB && flat,
        },
      ],
      lines: table(
        [`resident memory, ${whole(load.per_s)} charges/s`, 'MiB'],
        [
          ['after the start', whole(at_start)],
          ['first third', whole(median(samples.slice(0, third)))],
          ['second third', whole(middle)],
          ['last third', whole(last)],
          ['highest', whole(highest)],
        ],
      ),
    };
  } finally {
    clearInterval(sampling);
    await service.stop();
  }
}
