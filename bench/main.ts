/** `npm run bench -- --help`. One command: starts what it needs, measures, writes results.md, leaves nothing behind. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { say, type Context, type Section } from './context.js';
import { describeMachine } from './machine.js';
import { parseOptions, type Options, type Row } from './options.js';
import { startPostgres } from './postgres.js';
import { renderResults } from './report.js';
import { measureGenerator } from './rows/generator.js';
import { measureGrowth } from './rows/growth.js';
import { measureHalfPeak } from './rows/half-peak.js';
import { measureMemory } from './rows/memory.js';
import { measurePeak } from './rows/peak.js';
import { measureStartUp } from './rows/start-up.js';
import { measureSweep } from './rows/sweep.js';

const MEASURE: Readonly<Record<Row, (context: Context) => Promise<Section>>> = {
  peak: measurePeak,
  'half-peak': measureHalfPeak,
  'start-up': measureStartUp,
  growth: measureGrowth,
  sweep: measureSweep,
  memory: measureMemory,
};

function makeDirectory(options: Options): string {
  if (options.directory === null) return mkdtempSync(join(tmpdir(), 'oncepay-bench-'));
  mkdirSync(options.directory, { recursive: true });
  return mkdtempSync(join(options.directory, 'oncepay-bench-'));
}

async function run(options: Options): Promise<void> {
  const directory = makeDirectory(options);
  const postgres = await startPostgres(directory);
  const begun_at = new Date();
  let finished = false;
  try {
    const machine = describeMachine(directory, postgres.version);
    for (const line of machine) say(line);
    const context: Context = { options, directory, postgres, peak_per_s: null };
    const sections: Section[] = [await measureGenerator(context)];
    for (const row of options.only) {
      say(`== ${row}`);
      sections.push(await MEASURE[row](context));
    }
    const text = renderResults({ begun_at, options, machine, sections });
    writeFileSync(options.results, text);
    console.log(`\n${text}\nwritten to ${options.results}`);
    finished = true;
  } finally {
    await postgres.stop();
    if (!finished) say(`logs are kept in ${directory}`);
    rmSync(finished ? directory : join(directory, 'postgres'), { recursive: true, force: true });
  }
}

const options = parseOptions(process.argv.slice(2));
if (options !== null) await run(options);
