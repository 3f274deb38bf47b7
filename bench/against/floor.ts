import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';

const run = promisify(execFile);
const SCRIPT = fileURLToPath(new URL('./floor.sql', import.meta.url));
const SCHEMA = new URL('./floor-schema.sql', import.meta.url);

export async function hasPgbench(): Promise<boolean> {
  return run('pgbench', ['--version']).then(
    () => true,
    () => false,
  );
}

/** Empties the floor's tables. */
export async function resetFloor(database_url: string): Promise<void> {
  const client = new pg.Client({ connectionString: database_url });
  await client.connect();
  try {
    await client.query(readFileSync(SCHEMA, 'utf8'));
  } finally {
    await client.end();
  }
}

/** One charge's two statements, one row at a time, by pgbench: transactions per second. */
export async function runFloor(database_url: string, clients: number, measure_s: number): Promise<number> {
  const args = ['--no-vacuum', '--protocol=prepared', `--client=${clients}`, '--jobs=2', `--time=${measure_s}`];
  const { stdout } = await run('pgbench', [...args, `--file=${SCRIPT}`, database_url], {
    // Without it, plans made on the empty tables read them whole as they grow, to a fifth of the rate.
    env: { ...process.env, PGOPTIONS: '-c enable_seqscan=off' },
  });
  const per_s = /^tps = ([\d.]+)/m.exec(stdout)?.[1];
  const failed = /^number of failed transactions: (\d+)/m.exec(stdout)?.[1] ?? '0';
  if (per_s === undefined || failed !== '0') throw new Error(`pgbench:\n${stdout}`);
  return Number(per_s);
}
