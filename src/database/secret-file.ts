import { randomBytes } from 'node:crypto';
import { chmodSync, closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';

/** A secret that only its file holds: read from it, or made once and written, for its owner only (0600). */
export function keepSecret(file: string, make: () => string): string {
  const kept = read(file);
  if (kept !== undefined) {
    chmodSync(file, 0o600);
    if (kept === '')
      throw new Error(`${file} is empty. Put its content back, or remove it with all that depends on it`);
    return kept;
  }
  const secret = make();
  // Whole or not at all, also after a loss of power.
  const unfinished = `${file}.${process.pid}`;
  const descriptor = openSync(unfinished, 'w', 0o600);
  try {
    writeSync(descriptor, `${secret}\n`);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  renameSync(unfinished, file);
  return secret;
}

/** 256 random bits, fit for URLs. */
export function randomSecret(): string {
  return randomBytes(32).toString('base64url');
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
