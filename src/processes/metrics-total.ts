import { AggregatorRegistry } from 'prom-client';
import type { Snapshot } from './messages.js';

/** What only ever grows. It stays in the total when the process that counted it is gone: a total that falls would look
 * like a restart to Prometheus, which then counts all of what is left as new. */
const GROWING: ReadonlySet<unknown> = new Set(['counter', 'histogram', 'summary']);

export function growing(snapshot: Snapshot): Snapshot {
  return snapshot.filter(({ type }) => GROWING.has(type));
}

/** One for all, each metric by its `aggregator`: added up, unless it says otherwise. */
export function addUp(snapshots: readonly Snapshot[]): Promise<Snapshot> {
  return AggregatorRegistry.aggregate([...snapshots]).getMetricsAsJSON();
}

/** The same in Prometheus' text format. */
export function totalText(snapshots: readonly Snapshot[]): Promise<string> {
  return AggregatorRegistry.aggregate([...snapshots]).metrics();
}
