import type { Section } from './context.js';
import type { Options } from './options.js';
import { SETTINGS } from './postgres.js';
import { table } from './numbers.js';

interface Results {
  readonly begun_at: Date;
  readonly options: Options;
  readonly machine: readonly string[];
  readonly sections: readonly Section[];
}

function verdict(met: boolean | null): string {
  if (met === null) return '–';
  return met ? 'yes' : '**no**';
}

/** bench/results.md: the goals at the top, then how each was measured. */
export function renderResults({ begun_at, options, machine, sections }: Results): string {
  const goals = sections.flatMap((section) => section.goals);
  const settings = Object.entries(SETTINGS).map(([name, value]) => `${name} = ${value}`);
  return [
    '# Benchmark results',
    '',
    `Made by \`npm run bench\` on ${begun_at.toISOString().slice(0, 10)}. Load generator, service and PostgreSQL share the machine:`,
    '',
    ...machine,
    `- PostgreSQL with its default durability (fsync, synchronous_commit, full_page_writes on); ${settings.join(', ')}`,
    `- ${options.rounds} rounds, ${options.warmup_s} s warm-up and ${options.measure_s} s measured each; all ratios are between runs of this one benchmark`,
    '',
    ...table(
      ['what', 'goal', 'measured', 'met'],
      goals.map((goal) => [goal.what, goal.goal, goal.measured, verdict(goal.met)]),
    ),
    ...sections.flatMap((section) => ['', `## ${section.title}`, '', ...section.lines]),
    '',
  ].join('\n');
}
