/** `npm run bench -- --help`. One command: starts what it needs, measures, writes results.md, leaves nothing behind. */
import { writeFileSync } from 'node:fs';
import { say, type Context, type Section } from './context.js';
import { describeMachine } from './machine.js';
import { parseOptions, type Row } from './options.js';
import { renderResults } from './report.js';
import { measureGenerator } from './rows/generator.js';
import { measureGrowth } from './rows/growth.js';
import { measureHalfPeak } from './rows/half-peak.js';
import { measureMemory } from './rows/memory.js';
import { measurePeak } from './rows/peak.js';
import { measurePgBouncer } from './rows/pgbouncer.js';
import { measureProcesses } from './rows/processes.js';
import { measureStartUp } from './rows/start-up.js';
import { measureSweep } from './rows/sweep.js';
import { measureWeek } from './rows/week.js';
import { withSession } from './session.js';

const MEASURE: Readonly<Record<Row, (context: Context) => Promise<Section>>> = {
  peak: measurePeak,
  'half-peak': measureHalfPeak,
  'start-up': measureStartUp,
  processes: measureProcesses,
  pgbouncer: measurePgBouncer,
  growth: measureGrowth,
  sweep: measureSweep,
  week: measureWeek,
  memory: measureMemory,
};

async function measureAll(context: Context): Promise<void> {
  const { options, directory, postgres } = context;
  const begun_at = new Date();
  const machine = describeMachine(directory, postgres.version);
  for (const line of machine) say(line);
  const sections: Section[] = [await measureGenerator(context)];
  for (const row of options.only) {
    say(`== ${row}`);
    sections.push(await MEASURE[row](context));
  }
  const text = renderResults({ begun_at, options, machine, sections });
  writeFileSync(options.results, text);
  console.log(`\n${text}\nwritten to ${options.results}`);
}

const options = parseOptions(process.argv.slice(2));
if (options !== null) await withSession(options, measureAll);
