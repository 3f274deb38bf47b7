/**
 * `npm run bench:profile [-- --seconds N]`: the service's processor profile under full load, for Chrome's DevTools or
 * https://speedscope.app, written to bench/results/, and its heaviest modules and functions on the screen.
 */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { say, loadSpec, type Context } from './context.js';
import { runLoad } from './load/run-load.js';
import { decimal, whole } from './numbers.js';
import { parseOptions } from './options.js';
import { ROOT, startService } from './service.js';
import { withSession } from './session.js';

const SHOWN = 40;

interface ProfileNode {
  readonly id: number;
  readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  readonly children?: readonly number[];
}

interface Profile {
  readonly nodes: readonly ProfileNode[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** `pg`, `@fastify/static`, `store/settle`; undefined for what is Node's own. */
function moduleOf(url: string): string | undefined {
  return /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1] ?? /\/dist\/(.*)\.js$/.exec(url)?.[1];
}

function functionOf({ callFrame: { functionName, url, lineNumber } }: ProfileNode): string {
  const place = url.replace(/^.*\/(?=(node_modules|dist)\/)/, '');
  return `${functionName || '(anonymous)'}${place === '' ? '' : ` ${place}:${lineNumber + 1}`}`;
}

/** Time by a name that `nameOf` finds for each sample, as a share of the time that was not idle; most first. */
function shares(profile: Profile, nameOf: (node: ProfileNode) => string): string[] {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const spent = new Map<string, number>();
  let total = 0;
  profile.samples.forEach((id, index) => {
    const node = nodes.get(id);
    if (node === undefined || node.callFrame.functionName === '(idle)') return;
    const time = profile.timeDeltas[index] ?? 0;
    total += time;
    spent.set(nameOf(node), (spent.get(nameOf(node)) ?? 0) + time);
  });
  const sorted = [...spent].sort(([, a], [, b]) => b - a).slice(0, SHOWN);
  return sorted.map(([name, time]) => `${decimal((100 * time) / total, 1).padStart(5)} %  ${name}`);
}

/** Node's own work counts for the package, or our module, that called it. */
function byModule(profile: Profile): (node: ProfileNode) => string {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map(
    profile.nodes.flatMap((node) => (node.children ?? []).map((child) => [child, node.id] as const)),
  );
  return (node) => {
    for (let at: ProfileNode | undefined = node; at !== undefined; at = nodes.get(parents.get(at.id) ?? 0)) {
      const found = moduleOf(at.callFrame.url);
      if (found !== undefined) return found;
    }
    return node.callFrame.functionName.startsWith('(') ? node.callFrame.functionName : 'node itself';
  };
}

async function profileService(context: Context): Promise<void> {
  const { postgres, directory } = context;
  const results = join(ROOT, 'bench', 'results');
  mkdirSync(results, { recursive: true });
  await postgres.createDatabase('oncepay');
  const service = await startService({
    database_url: postgres.url('oncepay'),
    directory,
    name: 'profile',
    node_options: ['--cpu-prof', `--cpu-prof-dir=${results}`],
  });
  const load = await runLoad(loadSpec(context, service.url)).finally(() => service.stop());
  say(`${whole(load.per_s)} charges/s, p99 ${decimal(load.latency.p99_ms, 1)} ms`);
  const newest = readdirSync(results)
    .filter((name) => name.endsWith('.cpuprofile'))
    .sort()
    .at(-1);
  if (newest === undefined) throw new Error('node wrote no profile');
  const profile = JSON.parse(readFileSync(join(results, newest), 'utf8')) as Profile;
  console.log(['', 'By module', ...shares(profile, byModule(profile))].join('\n'));
  console.log(['', 'By function', ...shares(profile, functionOf)].join('\n'));
  say(`the profile: ${join(results, newest)}`);
}

const options = parseOptions(process.argv.slice(2));
if (options !== null) await withSession(options, profileService);
