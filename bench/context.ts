import type { Options } from './options.js';
import type { Postgres } from './postgres.js';
import type { LoadSpec } from './load/spec.js';
import { API_KEY } from './service.js';

/** What every row of the benchmark has to hand. */
export interface Context {
  readonly options: Options;
  /** For logs and data; gone afterwards. */
  readonly directory: string;
  readonly postgres: Postgres;
}

/** One row of the table at the top of the results. `met`: null where it could not be measured. */
export interface Goal {
  readonly what: string;
  readonly goal: string;
  readonly measured: string;
  readonly met: boolean | null;
}

export interface Section {
  readonly title: string;
  readonly goals: readonly Goal[];
  /** Markdown. */
  readonly lines: readonly string[];
}

/** The load of the options, changed where a row needs another. */
export function loadSpec(context: Context, url: string, changes: Partial<LoadSpec> = {}): LoadSpec {
  const { connections, warmup_s, measure_s } = context.options;
  return {
    url,
    request: { kind: 'charge' },
    api_key: API_KEY,
    connections,
    warmup_s,
    measure_s,
    rate_per_s: null,
    ...changes,
  };
}

export function say(text: string): void {
  console.log(`${new Date().toISOString().slice(11, 19)}  ${text}`);
}
