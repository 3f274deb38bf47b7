import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** One cell that held. */
export interface CellReport {
  readonly kind: string;
  readonly step: string;
  readonly recovery: string;
  readonly instances: number;
}

/** Beyond the matrix: what else was broken, and held. */
export interface FaultReport {
  readonly fault: string;
  readonly held: string;
}

/** False: a run of a part, or through the pooler. It adds nothing to what a whole run is collecting beside it. */
export const WRITES = process.env.CRASH_MATRIX_WRITES === '1';
export const REPORT_FOLDER = fileURLToPath(new URL('../../.cache/crash-matrix/', import.meta.url));

/** Keeps what held; the end of a run that writes docs/crash-matrix.md makes it of this (global-setup.ts). */
export function report(entry: CellReport | FaultReport): void {
  if (!WRITES) return;
  mkdirSync(REPORT_FOLDER, { recursive: true });
  const name = `${process.pid}-${process.hrtime.bigint()}.json`;
  writeFileSync(`${REPORT_FOLDER}${name}`, JSON.stringify(entry));
}

export function readReports(): (CellReport | FaultReport)[] {
  mkdirSync(REPORT_FOLDER, { recursive: true });
  return readdirSync(REPORT_FOLDER)
    .sort()
    .map((name) => JSON.parse(readFileSync(`${REPORT_FOLDER}${name}`, 'utf8')) as CellReport | FaultReport);
}
