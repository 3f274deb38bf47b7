import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

/** docs/adr/0063: wherever node is started without npm, it gets the options of `npm start`. */
const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const { scripts } = JSON.parse(read('package.json')) as { scripts: { start: string } };
const options = scripts.start.split(' ').filter((word) => word.startsWith('--'));

it('starts node with options that this Node knows', () => {
  expect(options).toHaveLength(3);
  const { status, stderr } = spawnSync(process.execPath, [...options, '--eval', ''], { encoding: 'utf8' });
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
});

it('starts node in the image as npm start does', () => {
  const command = /^CMD (\[.*\])$/m.exec(read('Dockerfile'))?.[1] ?? '[]';
  expect(JSON.parse(command)).toEqual(['node', ...options, 'dist/main.js']);
});

it('starts node in the unit file as npm start does', () => {
  const command = /^ExecStart=\S+ (.*) \S+$/m.exec(read('docs/processes.md'))?.[1];
  expect(command).toBe(options.join(' '));
});
