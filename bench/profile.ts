/**
 * `npm run bench:profile [-- --seconds N]`: the service's processor profile under full load, for Chrome's DevTools or
 * https://speedscope.app, written to bench/results/, and its heaviest functions on the screen.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { say, loadSpec, type Context } from './context.js';
import { runLoad } from './load/run-load.js';
import { decimal, whole } from './numbers.js';
import { parseOptions, type Options } from './options.js';
import { startPostgres } from './postgres.js';
import { ROOT, startService } from './service.js';

const SHOWN = 40;

interface Profile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** Time spent in each function itself, as a share of the time that was not idle; most first. */
function heaviest(file: string): string[] {
  const profile = JSON.parse(readFileSync(file, 'utf8')) as Profile;
  const names = new Map(
    profile.nodes.map(({ id, callFrame }) => {
      const place =
        callFrame.url === ''
          ? ''
          : ` ${callFrame.url.replace(/^.*\/(?=(node_modules|dist)\/)/, '')}:${callFrame.lineNumber + 1}`;
      return [id, `${callFrame.functionName || '(anonymous)'}${place}`];
    }),
  );
  const spent = new Map<string, number>();
  let total = 0;
  profile.samples.forEach((id, index) => {
    const name = names.get(id) ?? '?';
    if (name === '(idle)') return;
    const time = profile.timeDeltas[index] ?? 0;
    total += time;
    spent.set(name, (spent.get(name) ?? 0) + time);
  });
  const sorted = [...spent].sort(([, a], [, b]) => b - a).slice(0, SHOWN);
  return sorted.map(([name, time]) => `${decimal((100 * time) / total, 1).padStart(5)} %  ${name}`);
}

async function run(options: Options): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'oncepay-profile-'));
  const postgres = await startPostgres(directory);
  const results = join(ROOT, 'bench', 'results');
  mkdirSync(results, { recursive: true });
  try {
    await postgres.createDatabase('oncepay');
    const service = await startService({
      database_url: postgres.url('oncepay'),
      directory,
      name: 'profile',
      node_options: ['--cpu-prof', `--cpu-prof-dir=${results}`],
    });
    const context: Context = { options, directory, postgres, peak_per_s: null };
    const load = await runLoad(loadSpec(context, service.url)).finally(() => service.stop());
    say(`${whole(load.per_s)} charges/s, p99 ${decimal(load.latency.p99_ms, 1)} ms`);
    const newest = readdirSync(results)
      .filter((name) => name.endsWith('.cpuprofile'))
      .sort()
      .at(-1);
    if (newest === undefined) throw new Error('node wrote no profile');
    console.log(heaviest(join(results, newest)).join('\n'));
    say(`the profile: ${join(results, newest)}`);
  } finally {
    await postgres.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

const options = parseOptions(process.argv.slice(2));
if (options !== null) await run(options);
