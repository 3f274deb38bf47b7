import { rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { STEPS } from './steps.js';
import { KINDS } from './scenario.js';
import { type CellReport, type FaultReport, readReports, REPORT_FOLDER, WRITES } from './report.js';

const DOCUMENT = fileURLToPath(new URL('../../docs/crash-matrix.md', import.meta.url));

/** Collects what held and, for a whole run (`npm run test:crash`), writes it down. */
export default function setup(): () => void {
  if (!WRITES) return () => undefined;
  rmSync(REPORT_FOLDER, { recursive: true, force: true });
  return () => writeFileSync(DOCUMENT, documentOf(readReports()));
}

function documentOf(reports: readonly (CellReport | FaultReport)[]): string {
  const cells = reports.filter((entry): entry is CellReport => 'kind' in entry);
  const faults = reports.filter((entry): entry is FaultReport => 'fault' in entry);
  return `# The crash matrix

Written by \`npm run test:crash\`, which runs in CI: every cell is a test that has just held. Service, provider and database
are processes of their own; what is asserted is the provider's own ledger and the rows, not our answers alone.

## kill -9 of the service

At each step of each kind of operation the service is killed with \`kill -9\`. Afterwards the client repeats its request with
the same key (*retry*), or nobody does and the background job alone goes on (*job*), on the restarted service (*1*) or on a
second instance that never stopped (*2*). A ✓ means: exactly one movement at the provider, the true state in the database,
the final answer for whoever retries, byte for byte from then on, and nothing left unfinished. After the reservation without a
retry it means: no call, no movement, and the key is free; but for a charge, which is begun together with its reservation
and is finished.

${matrix(cells)}

## Everything else that was broken

| what happens | what held |
|---|---|
${faultRows(faults)}

${cells.length} cells and ${faults.length} faults.
`;
}

function matrix(cells: readonly CellReport[]): string {
  const kinds = KINDS.filter((kind) => cells.some((cell) => cell.kind === kind));
  const steps = Object.keys(STEPS).filter((step) => cells.some((cell) => cell.step === step));
  const columns = unique(cells.map(({ recovery, instances }) => `${recovery}, ${instances}`)).sort();
  const held = new Set(cells.map(({ kind, step, recovery, instances }) => `${kind}|${step}|${recovery}, ${instances}`));
  const lines = kinds.flatMap((kind) =>
    steps.map((step) => {
      const marks = columns.map((column) => (held.has(`${kind}|${step}|${column}`) ? '✓' : '✗'));
      return `| ${kind} | ${step} | ${marks.join(' | ')} |`;
    }),
  );
  return [
    `| kind | killed | ${columns.join(' | ')} |`,
    `|---|---|${columns.map(() => '---').join('|')}|`,
    ...lines,
  ].join('\n');
}

/** One line for each fault with the kinds that it was tried on. */
function faultRows(faults: readonly FaultReport[]): string {
  const kindsOf = new Map<string, string[]>();
  for (const { fault, held } of faults) {
    const [, name = fault, kind] = /^(.*) \(([^()]+)\)$/.exec(fault) ?? [];
    const row = `${name}|${held}`;
    kindsOf.set(row, [...(kindsOf.get(row) ?? []), ...(kind === undefined ? [] : [kind])]);
  }
  return [...kindsOf]
    .map(([row, kinds]) => {
      const [name, held] = row.split('|');
      return `| ${name}${kinds.length === 0 ? '' : `: ${kinds.join(', ')}`} | ${held} |`;
    })
    .join('\n');
}

function unique(values: readonly string[]): string[] {
  return [...new Set(values)];
}
