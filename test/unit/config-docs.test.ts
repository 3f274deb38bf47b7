import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { configurationTable, envExample } from '../support/config-docs.js';

test('.env.example lists every variable with its default', async () => {
  await expect(envExample()).toMatchFileSnapshot('../../.env.example');
});

test('docs/configuration.md has the same table as the code', async () => {
  const file = '../../docs/configuration.md';
  const page = readFileSync(fileURLToPath(new URL(file, import.meta.url)), 'utf8');
  const [, before, , after] = /^([^]*<!-- variables -->\n\n)([^]*?)(\n\n<!-- \/variables -->[^]*)$/.exec(page) ?? [];
  expect(before, 'the marks around the table').toBeDefined();
  await expect(`${before}${configurationTable()}${after}`).toMatchFileSnapshot(file);
});
