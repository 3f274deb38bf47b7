import type { Config } from '../config.js';

/** The first argument of a process that is a worker, also for people who look at the list of processes. */
export const WORKER_ARGUMENT = 'worker';

/** A metric as prom-client tells it (`getMetricsAsJSON`); the rest is between its registries. */
export interface MetricSnapshot {
  readonly name: string;
  readonly type: unknown;
}
export type Snapshot = readonly MetricSnapshot[];

/** What a worker is told once, before anything else. */
export interface Order {
  /** From 1 to PROCESSES; who takes the place of one that ended has its number. */
  readonly number: number;
  readonly config: Config;
  readonly runs_jobs: boolean;
}

/** From the parent. `noted` answers `failed` and `leaving`: a process that ends may be gone before it was heard. */
export type ToWorker =
  | { readonly type: 'order'; readonly order: Order }
  | { readonly type: 'noted' }
  | { readonly type: 'snapshot_wanted'; readonly id: number }
  | { readonly type: 'total'; readonly id: number; readonly text: string | null };

export type ToParent =
  | { readonly type: 'order_wanted' }
  | { readonly type: 'ready' }
  | { readonly type: 'failed'; readonly reason: string }
  | { readonly type: 'leaving'; readonly metrics: Snapshot }
  | { readonly type: 'snapshot'; readonly id: number; readonly metrics: Snapshot }
  | { readonly type: 'total_wanted'; readonly id: number };
