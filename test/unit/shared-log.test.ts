import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import type { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { expect, it } from 'vitest';
import { soon } from '../support/soon.js';

const MAIN = fileURLToPath(new URL('children/shared-log.ts', import.meta.url));
const TSX = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
const NAMES = ['a', 'b', 'c'];
const LINES = 3_000;

it('processes that share a pipe which is read slowly do not mix their lines', async () => {
  const writers = NAMES.map((name) => `"$NODE" --import "$TSX" "$MAIN" ${name} ${LINES} & `).join('');
  // A real pipe, as a shell or Docker makes it; nobody reads from it until fd 3 says so, and then slowly.
  const child = spawn('bash', ['-c', `{ ${writers} wait; } | { read -r _ <&3; dd bs=512 status=none; }`], {
    env: { PATH: process.env.PATH, NODE: process.execPath, TSX, MAIN },
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
  });
  const [, stdout, stderr, gate] = child.stdio as unknown as [null, Readable, Readable, Writable];
  let said = '';
  stderr.on('data', (data: Buffer) => (said += data.toString()));
  // It is full long before: what is written in larger pieces is cut in the middle of a line.
  await soon(() => expect(said.match(/logged/g)).toHaveLength(NAMES.length));
  gate.end('go\n');
  const lines = (await text(stdout)).trimEnd().split('\n');
  const parsed = lines.map((line) => JSON.parse(line) as { name: string; line: number });
  for (const name of NAMES) {
    const own = parsed.filter((line) => line.name === name).map(({ line }) => line);
    expect(own).toEqual(Array.from({ length: LINES }, (_, line) => line));
  }
}, 60_000);
