import { readFileSync, statSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import type { Context } from './context.js';
import { API_KEY, startService } from './service.js';

/** How PostgreSQL ran one statement. */
export interface StatementPlan {
  /** `Limit < Index Scan payment_list`: the outermost step first; steps that feed one together stand in brackets. */
  readonly steps: string;
  /** Rows that its scans looked at, whether they belonged to the answer or not. */
  readonly rows: number;
  /** Pages of tables and indexes, from memory or disk. */
  readonly buffers: number;
}

/** Each session that begins from now on writes how every one of its statements was run into the server's log. */
const EXPLAIN: Readonly<Record<string, string>> = {
  session_preload_libraries: 'auto_explain',
  'auto_explain.log_min_duration': '0',
  'auto_explain.log_analyze': 'on',
  'auto_explain.log_buffers': 'on',
  'auto_explain.log_format': 'json',
};

/** Longer than the service's jobs sleep between two looks. */
const LISTEN_MS = 3_000;
/** The log is written before the answer is sent, by another process. */
const LOGGED_WITHIN_MS = 200;
/** Answers 404, after what every request costs: authentication. */
const HARMLESS_PATH = '/idempotency-keys/nobody-has-this';

interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Index Name'?: string;
  readonly 'Relation Name'?: string;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly 'Rows Removed by Index Recheck'?: number;
  readonly 'Shared Hit Blocks': number;
  readonly 'Shared Read Blocks': number;
  readonly Plans?: readonly PlanNode[];
}

interface LoggedPlan {
  readonly 'Query Text': string;
  readonly Plan: PlanNode;
}

/**
 * How the statements of each GET request are run, seen from within the service's own sessions, with its settings and
 * parameters. Each is asked for once by a service that is started for it: explaining costs time, so nothing is measured.
 * @param paths by the names they get in the answer
 * @returns for each path its statements, without those that the service sends by itself
 */
export async function plansOf(
  { postgres, directory }: Context,
  database: string,
  paths: Readonly<Record<string, string>>,
): Promise<ReadonlyMap<string, readonly StatementPlan[]>> {
  for (const [name, value] of Object.entries(EXPLAIN)) {
    await postgres.query(database, `ALTER DATABASE "${database}" SET ${name} = '${value}'`);
  }
  const service = await startService({ database_url: postgres.url(database), directory, name: `${database}-plans` });
  const found = new Map<string, readonly StatementPlan[]>();
  try {
    const logged = async (path: string, listen_ms: number): Promise<LoggedPlan[]> => {
      const log_start = statSync(postgres.log_file).size;
      await fetch(`${service.url}${path}`, { headers: { authorization: `Bearer ${API_KEY}` } });
      await wait(listen_ms);
      return loggedPlans(readFileSync(postgres.log_file).subarray(log_start).toString('utf8'));
    };
    const background = new Set((await logged(HARMLESS_PATH, LISTEN_MS)).map((plan) => plan['Query Text']));
    for (const [name, path] of Object.entries(paths)) {
      const plans = await logged(path, LOGGED_WITHIN_MS);
      found.set(
        name,
        plans.filter((plan) => !background.has(plan['Query Text'])).map(({ Plan }) => statementPlan(Plan)),
      );
    }
  } finally {
    await service.stop();
    for (const name of Object.keys(EXPLAIN)) {
      await postgres.query(database, `ALTER DATABASE "${database}" RESET ${name}`);
    }
  }
  return found;
}

/** `… LOG:  duration: 0.123 ms  plan:` and then JSON, each line after a tab. */
function loggedPlans(log: string): LoggedPlan[] {
  return [...log.matchAll(/ LOG: {2}duration: [\d.]+ ms {2}plan:\n((?:\t.*\n)+)/g)].map(
    ([, json = '']) => JSON.parse(json) as LoggedPlan,
  );
}

function statementPlan(plan: PlanNode): StatementPlan {
  return {
    steps: stepsOf(plan),
    rows: rowsOf(plan),
    buffers: plan['Shared Hit Blocks'] + plan['Shared Read Blocks'],
  };
}

function stepsOf(node: PlanNode): string {
  const { 'Node Type': type, 'Index Name': index, 'Relation Name': relation, Plans: inputs = [] } = node;
  // A bitmap's index stands at the step below.
  const of = index ?? relation;
  const step = of === undefined ? type : `${type} ${of}`;
  const [only, ...others] = inputs.map(stepsOf);
  if (only === undefined) return step;
  return others.length === 0 ? `${step} < ${only}` : `${step} (${[only, ...others].join(', ')})`;
}

/** Rows are averages per loop. */
function rowsOf(node: PlanNode): number {
  const below = (node.Plans ?? []).reduce((sum, input) => sum + rowsOf(input), 0);
  if (node['Relation Name'] === undefined) return below;
  const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0);
  return below + Math.round((node['Actual Rows'] + removed) * node['Actual Loops']);
}
