import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const CACHE = fileURLToPath(new URL('../../.cache/kafka', import.meta.url));
/** As in pom.xml. @see docs/adr/0040-kafka-client.md for why this line of Kafka. */
export const KAFKA_VERSION = '4.1.2';
const JAVA_MIN = 17;

/**
 * Brings Apache Kafka's jars to .cache/kafka/<version>/jars by Maven, once, and checks them against jars.sha256.
 * @returns the class path
 * @throws Error that says what this machine lacks
 */
export async function kafkaClassPath(): Promise<string> {
  await checkJava();
  const directory = join(CACHE, KAFKA_VERSION, 'jars');
  if (!existsSync(directory)) await download(directory);
  return join(directory, '*');
}

async function checkJava(): Promise<void> {
  const text = await output('java', ['-version']).catch(() => '');
  const version = Number(/version "(\d+)/.exec(text)?.[1] ?? 0);
  if (version < JAVA_MIN) {
    throw new Error(`Java ${JAVA_MIN} or later is needed to run Kafka here (found: ${version || 'none'}).`);
  }
}

async function download(directory: string): Promise<void> {
  await mkdir(CACHE, { recursive: true });
  // Into a folder of its own, renamed when complete: a download that was cut off is never taken for one.
  const partial = await mkdtemp(join(CACHE, 'download-'));
  try {
    const goal = ['dependency:copy-dependencies', '-DincludeScope=runtime', `-DoutputDirectory=${partial}`];
    await output('mvn', ['-q', '-B', '-C', '-f', join(HERE, 'pom.xml'), ...goal]).catch((error: unknown) => {
      throw new Error(
        `Maven could not fetch Kafka's jars (is mvn installed, is Maven Central reached?): ${String(error)}`,
      );
    });
    await verify(partial);
    await mkdir(join(CACHE, KAFKA_VERSION), { recursive: true });
    await rename(partial, directory).catch((error: unknown) => {
      // Another process was faster.
      if (!existsSync(directory)) throw error;
    });
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
}

async function verify(directory: string): Promise<void> {
  const found: string[] = [];
  for (const name of (await readdir(directory)).sort()) {
    const hash = createHash('sha256').update(await readFile(join(directory, name)));
    found.push(`${hash.digest('hex')}  ${name}`);
  }
  const expected = (await readFile(join(HERE, 'jars.sha256'), 'utf8')).trim().split('\n');
  const wrong = found.filter((line) => !expected.includes(line));
  const missing = expected.filter((line) => !found.includes(line));
  if (wrong.length + missing.length > 0) {
    throw new Error(
      `Kafka's jars are not those of jars.sha256. Not expected: ${wrong.join(', ')}. Missing: ${missing.join(', ')}`,
    );
  }
}

/** Runs a program to its end. @returns what it printed, both streams. */
export function output(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const chunks: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => chunks.push(chunk));
    child.on('error', reject);
    child.on('close', (code) => {
      const text = Buffer.concat(chunks).toString();
      if (code === 0) resolve(text);
      else reject(new Error(`${command} ended with ${code}: ${text.slice(-2000)}`));
    });
  });
}
