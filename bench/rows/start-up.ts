import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { setTimeout as wait } from 'node:timers/promises';
import { say, type Context, type Section } from '../context.js';
import { decimal, table } from '../numbers.js';
import { freePort } from '../../scripts/free-port.js';
import { API_KEY, start, stop } from '../service.js';

const LIMIT_S = 5;
const GIVE_UP_S = 60;

async function charge(url: string): Promise<boolean> {
  const id = randomUUID();
  return fetch(`${url}/payments`, {
    method: 'POST',
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json', 'idempotency-key': id },
    body: JSON.stringify({ amount: '100.00', currency: 'RUB', customer_id: '42', external_payment_id: `order-${id}` }),
  }).then(
    (answer) => answer.status === 201,
    () => false,
  );
}

/** Seconds from `npm start` to the first 201, all defaults: embedded PostgreSQL, simulator inside. */
async function startOnce(directory: string, data_dir: string): Promise<number> {
  const port = await freePort();
  const log = join(directory, 'start-up.log');
  const env = { HOST: '127.0.0.1', PORT: String(port), DATA_DIR: data_dir, BOOTSTRAP_API_KEY: API_KEY };
  const begun_at = performance.now();
  const child = start({ program: 'npm', args: ['start', '--silent'], env, log });
  try {
    const secondsGone = (): number => (performance.now() - begun_at) / 1000;
    while (!(await charge(`http://127.0.0.1:${port}`))) {
      if (child.exitCode !== null || secondsGone() > GIVE_UP_S) throw new Error(`npm start gave no charge, see ${log}`);
      await wait(10);
    }
    return secondsGone();
  } finally {
    await stop(child);
  }
}

export async function measureStartUp({ directory }: Context): Promise<Section> {
  const data_dir = join(directory, 'start-up-data');
  mkdirSync(data_dir);
  const first_s = await startOnce(directory, data_dir);
  const again_s = await startOnce(directory, data_dir);
  say(`  first start ${decimal(first_s)} s, again ${decimal(again_s)} s`);
  return {
    title: 'From `npm start` to the first 201',
    goals: [
      {
        what: '`npm start` to the first 201',
        goal: `≤ ${LIMIT_S} s`,
        measured: `**${decimal(first_s)} s**`,
        met: first_s <= LIMIT_S,
      },
    ],
    lines: table(
      ['with embedded PostgreSQL and the simulator inside', 'seconds'],
      [
        ['first start, which makes the database', decimal(first_s)],
        ['second start', decimal(again_s)],
      ],
    ),
  };
}
