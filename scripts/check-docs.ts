import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Runs every command of README.md and docs/ as it stands there, one shell per page, and compares what a block is shown to
 * print with what it prints (ids, times and ports aside). A block after `<!-- docs: start -->` starts the service; one after
 * `<!-- docs: server -->` runs until it has printed something; one after `<!-- docs: not run, … -->` can't run here, and the reason is printed.
 */
interface Block {
  readonly file: string;
  readonly line: number;
  readonly language: string;
  readonly text: string;
  readonly note: string;
}

const READY_LIMIT_MS = 180_000;

const folder = mkdtempSync(join(tmpdir(), 'oncepay-docs-'));
let service: ChildProcess | undefined;
let failures = 0;
let commands = 0;

const files = [
  'README.md',
  ...readdirSync('docs')
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];
try {
  spawnSync('chmod', ['711', folder]);
  const facts = await startService();
  for (const file of files) {
    const blocks = blocksOf(file);
    runPage(blocks, facts);
    for (const block of blocks.filter(({ language, note }) => language === 'sh' && note === 'server'))
      await runServer(block);
  }
} finally {
  await stopService();
  rmSync(folder, { recursive: true, force: true });
}
console.log(`${commands} blocks of commands ran, ${failures} did not do what the page says`);
process.exitCode = failures === 0 ? 0 : 1;

interface Facts {
  readonly url: string;
  readonly key_file: string;
}

async function startService(): Promise<Facts> {
  // `npm ci` has run: CI's clone is a fresh one. What the page starts is started here, on a port and data of its own.
  service = spawn('npm', ['start'], {
    env: { ...process.env, DATA_DIR: folder, PORT: '0', RATE_LIMIT_PER_SECOND: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let printed = '';
  service.stdout?.on('data', (data: Buffer) => (printed += data.toString()));
  const end = Date.now() + READY_LIMIT_MS;
  for (;;) {
    const url = /Oncepay\s+(http:\S+)/.exec(printed)?.[1];
    const key_file = /API key\s+(\S+)/.exec(printed)?.[1];
    if (url !== undefined && key_file !== undefined) return { url, key_file };
    if (Date.now() > end) throw new Error(`npm start did not come up:\n${printed}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function stopService(): Promise<void> {
  if (service?.exitCode !== null) return;
  const ended = new Promise((resolve) => service?.once('exit', resolve));
  service.kill('SIGTERM');
  await ended;
}

function blocksOf(file: string): Block[] {
  const blocks: Block[] = [];
  let open: { language: string; line: number; lines: string[]; note: string } | undefined;
  let note = '';
  for (const [index, text] of readFileSync(file, 'utf8').split('\n').entries()) {
    const fence = /^```(\w*)$/.exec(text);
    if (fence && open) {
      blocks.push({ file, line: open.line, language: open.language, text: open.lines.join('\n'), note: open.note });
      open = undefined;
      note = '';
    } else if (fence) open = { language: fence[1] ?? '', line: index + 1, lines: [], note };
    else if (open) open.lines.push(text);
    else if (text.startsWith('<!-- docs: ')) note = text.replace(/^<!-- docs: | -->$/g, '');
    else if (text.trim() !== '') note = '';
  }
  return blocks;
}

/** All commands of a page in one shell, so that what one block exports the next one has. */
function runPage(blocks: readonly Block[], facts: Facts): void {
  const script: string[] = [];
  const ran: { block: Block; expected: Block | undefined }[] = [];
  blocks.forEach((block, index) => {
    if (block.language !== 'sh') return;
    const where = `${block.file}:${block.line}`;
    if (block.note === 'start') {
      console.log(`ok   ${where}: ${block.text} (running)`);
      commands += 1;
      return;
    }
    if (block.note === 'server') return;
    if (block.note !== '') {
      console.log(`left ${where}: ${block.note}`);
      return;
    }
    const next = blocks[index + 1];
    ran.push({ block, expected: next?.language === 'json' || next?.language === 'text' ? next : undefined });
    script.push(`printf '\\036%s\\n' '${ran.length - 1}'`, adapted(block.text, facts), `printf '\\037%s\\n' "$?"`);
  });
  if (ran.length === 0) return;
  const { stdout } = spawnSync('bash', ['-c', script.join('\n')], {
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
    env: { ...process.env, CI: '', DATA_DIR: folder },
  });
  ran.forEach(({ block, expected }, index) => judge(block, expected, outputOf(stdout, index)));
}

/** A command that goes on until it is ended: it has to come up. */
async function runServer(block: Block): Promise<void> {
  commands += 1;
  const child = spawn('bash', ['-c', block.text], { detached: true, stdio: ['ignore', 'pipe', 'inherit'] });
  const isUp = await new Promise<boolean>((resolve) => {
    const timer = setTimeout(() => resolve(false), READY_LIMIT_MS);
    const settle = (up: boolean): void => {
      clearTimeout(timer);
      resolve(up);
    };
    child.stdout.on('data', (data: Buffer) => {
      if (data.toString().includes('http://')) settle(true);
    });
    child.once('exit', () => settle(false));
  });
  if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGTERM');
  console.log(
    `${isUp ? 'ok  ' : 'FAIL'} ${block.file}:${block.line}: ${block.text.split('\n').at(-1) ?? ''} (a server)`,
  );
  if (!isUp) failures += 1;
}

function adapted(text: string, { url, key_file }: Facts): string {
  return text.replaceAll('http://127.0.0.1:3000', url).replaceAll('.data/api-key', key_file);
}

function outputOf(stdout: string, index: number): { text: string; status: string } {
  const part = stdout.split('\u001e').find((text) => text.startsWith(`${index}\n`)) ?? '';
  const [text = '', status = 'none'] = part.slice(`${index}\n`.length).split('\u001f');
  return { text, status: status.trim() };
}

function judge(block: Block, expected: Block | undefined, output: { text: string; status: string }): void {
  commands += 1;
  const where = `${block.file}:${block.line}`;
  const same = expected === undefined || normalised(output.text) === normalised(expected.text);
  if (output.status === '0' && same) {
    console.log(`ok   ${where}: ${block.text.split('\n')[0]?.slice(0, 90) ?? ''}`);
    return;
  }
  failures += 1;
  console.log(`FAIL ${where} (status ${output.status}): ${block.text}`);
  console.log(`  printed:  ${output.text.slice(-2_000)}`);
  if (expected) console.log(`  expected: ${expected.text}`);
}

/** What differs from run to run is not compared. */
function normalised(text: string): string {
  return text
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, '<id>')
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, '<time>')
    .replace(/127\.0\.0\.1:\d+/g, '<address>')
    .replace(/\s+/g, ' ')
    .trim();
}
