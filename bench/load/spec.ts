/** What one run of the load generator does, and what it tells afterwards. Both cross a process border as JSON. */

export type RequestKind =
  /** A new charge each time: a new Idempotency-Key and a new external_payment_id. */
  | { readonly kind: 'charge' }
  /** Charges made before the measuring, `pool` of them, sent again with their keys, in random order. */
  | { readonly kind: 'replay'; readonly pool: number }
  | { readonly kind: 'get'; readonly path: string };

export interface LoadSpec {
  readonly url: string;
  readonly request: RequestKind;
  readonly api_key: string | null;
  /** Keep-alive connections, each with one request under way at a time. */
  readonly connections: number;
  readonly warmup_s: number;
  readonly measure_s: number;
  /**
   * Null: each connection sends its next request when it has its answer (the peak). Otherwise requests fall due at
   * this rate whatever the service does, and a latency counts from when its request fell due: a stall shows in
   * every request that it delayed, not only in those that were under way.
   */
  readonly rate_per_s: number | null;
}

export interface Latency {
  readonly p50_ms: number;
  readonly p90_ms: number;
  readonly p99_ms: number;
  readonly max_ms: number;
}

export interface LoadResult {
  /** Good answers within the measured time. */
  readonly completed: number;
  readonly per_s: number;
  readonly latency: Latency;
  /** What was not a good answer, by what it was; over the whole run, warm-up included. */
  readonly errors: Readonly<Record<string, number>>;
  /** Share of one core that the generator itself used while measuring: near 1, the numbers are its own limit. */
  readonly generator_cpu: number;
}

export type GeneratorMessage =
  { readonly type: 'measuring' } | { readonly type: 'result'; readonly result: LoadResult };
