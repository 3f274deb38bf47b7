// Before `npm start`: builds when dist/ is missing or was made from other sources, as after `npm ci --ignore-scripts` or
// a pull. Compares contents, not times: a copied tree keeps no order of times. `--built` records what was just built,
// `--check` only tells, by its exit code.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const main = join(root, 'dist', 'main.js');
const record = join(root, 'dist', '.built-from');
const GENERATED = join('src', 'database', 'generated');
const SINGLE_FILES = [
  'package.json',
  'tsconfig.json',
  'tsconfig.build.json',
  'prisma.config.ts',
  'prisma/schema.prisma',
];

function inputs() {
  const sources = readdirSync(join(root, 'src'), { recursive: true })
    .map((name) => join('src', name))
    .filter((name) => name.endsWith('.ts') && !name.startsWith(GENERATED));
  return [...SINGLE_FILES, ...sources.sort()];
}

function fingerprint() {
  const hash = createHash('sha256');
  for (const name of inputs())
    hash
      .update(`${name}\0`)
      .update(readFileSync(join(root, name)))
      .update('\0');
  return hash.digest('hex');
}

function isBuilt() {
  return existsSync(main) && existsSync(record) && readFileSync(record, 'utf8') === fingerprint();
}

if (process.argv.includes('--built')) {
  writeFileSync(record, fingerprint());
} else if (process.argv.includes('--check')) {
  process.exitCode = isBuilt() ? 0 : 1;
} else if (!isBuilt()) {
  console.log('Building, since dist/ is missing or older than the sources …');
  const { status } = spawnSync('npm', ['run', '--silent', 'build'], { cwd: root, stdio: 'inherit' });
  if (status !== 0) {
    console.error('The build failed. Is everything installed (`npm ci`), and may this user write dist/?');
    process.exit(1);
  }
}
