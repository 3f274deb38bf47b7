import { setTimeout as delay } from 'node:timers/promises';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';

/** What became of a request with an `Idempotency-Key` (docs/idempotency.md). */
export const IDEMPOTENCY_OUTCOMES = [
  'new',
  'replayed',
  'in_progress',
  'reused',
  'resumed',
  'released',
  'open',
] as const;
export type IdempotencyOutcome = (typeof IDEMPOTENCY_OUTCOMES)[number];

/** Work that waits: how much of it, and how long its oldest piece has been waiting (0 where there is none). */
export interface Waiting {
  readonly count: number;
  readonly oldest_age_s: number;
}

/** What the database says about unfinished work. Counts may stop at a bound, so that a scrape stays cheap. */
export interface Backlog {
  /** Operations whose outcome is not known yet. */
  readonly unknown: Waiting;
  readonly needs_review: Waiting;
  readonly outbox_pending: Waiting;
  readonly outbox_quarantined: Waiting;
  readonly open_anomalies: Waiting;
}

export interface PoolState {
  readonly total: number;
  readonly idle: number;
  readonly waiting: number;
}

export interface Metrics {
  readonly registry: Registry;
  /** One HTTP answer. `route` is the pattern (`/payments/:id`), never the path. */
  observeRequest(route: string, method: string, status: number, duration_ms: number): void;
  countIdempotency(outcome: IdempotencyOutcome): void;
  /** One call of a provider. `outcome`: the fact's status, `not_found`, or the reason of a ProviderError. */
  observeProviderCall(provider: string, operation: string, outcome: string, duration_ms: number): void;
  /** One attempt at an operation; `started` and not `finished` is what cut a process off. */
  countAttempt(operation: string, phase: 'started' | 'finished'): void;
  countAnomaly(kind: string): void;
  countWebhook(provider: string, outcome: string): void;
  /** An outbox row: `published`, `failed`, `quarantined`. */
  countOutbox(outcome: string, rows?: number): void;
  countDeleted(table: string, rows: number): void;
  /** One batch of a batcher that went to the database. */
  observeBatch(batcher: string, rows: number): void;
  /** Where the gauges come from; read at each scrape. A source that fails leaves its gauges out. */
  watchPool(read: () => PoolState): void;
  watchBatcher(batcher: string, queued: () => number): void;
  watchBacklog(read: () => Promise<Backlog>): void;
}

/** A database that hangs must not cost a scrape everything else: Prometheus waits for ten seconds. */
const BACKLOG_LIMIT_MS = 2_000;
const DURATION_BUCKETS_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** A registry of its own per call, so that two apps in one process don't meet. */
export function createMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return { registry, ...requestMetrics(registry), ...workMetrics(registry), ...gauges(registry) };
}

function requestMetrics(registry: Registry): Pick<Metrics, 'observeRequest' | 'countIdempotency'> {
  const registers = [registry];
  const requests = new Counter({
    name: 'oncepay_http_requests_total',
    help: 'HTTP answers by route, method and class of status.',
    labelNames: ['route', 'method', 'status'],
    registers,
  });
  const durations = new Histogram({
    name: 'oncepay_http_request_duration_seconds',
    help: 'Time from the request head to the end of the answer.',
    labelNames: ['route', 'method', 'status'],
    buckets: DURATION_BUCKETS_S,
    registers,
  });
  const idempotency = new Counter({
    name: 'oncepay_idempotency_outcomes_total',
    help: 'Requests with an Idempotency-Key by what became of them.',
    labelNames: ['outcome'],
    registers,
  });
  const children = remembered((route, method, status) => ({
    count: requests.labels(route, method, status),
    duration: durations.labels(route, method, status),
  }));
  const outcomes = new Map(IDEMPOTENCY_OUTCOMES.map((outcome) => [outcome, idempotency.labels(outcome)]));
  for (const child of outcomes.values()) child.inc(0);
  return {
    observeRequest(route, method, status, duration_ms) {
      const { count, duration } = children(route, method, `${Math.floor(status / 100)}xx`);
      count.inc();
      duration.observe(duration_ms / 1000);
    },
    countIdempotency(outcome) {
      outcomes.get(outcome)?.inc();
    },
  };
}

/** The children of a metric, made once per label set: a look-up costs a tenth of hashing the labels at each request. */
function remembered<Child>(make: (...labels: string[]) => Child): (...labels: string[]) => Child {
  const children = new Map<string, Child>();
  return (...labels) => {
    const name = labels.join(' ');
    let child = children.get(name);
    if (child === undefined) {
      child = make(...labels);
      children.set(name, child);
    }
    return child;
  };
}

type WorkMetrics = Pick<
  Metrics,
  | 'observeProviderCall'
  | 'countAttempt'
  | 'countAnomaly'
  | 'countWebhook'
  | 'countOutbox'
  | 'countDeleted'
  | 'observeBatch'
>;

function workMetrics(registry: Registry): WorkMetrics {
  const count = (name: string, help: string, labelNames: readonly string[]) =>
    new Counter({ name, help, labelNames: [...labelNames], registers: [registry] });
  const calls = new Histogram({
    name: 'oncepay_provider_call_duration_seconds',
    help: 'Calls of a provider by operation and outcome.',
    labelNames: ['provider', 'operation', 'outcome'],
    buckets: DURATION_BUCKETS_S,
    registers: [registry],
  });
  const batches = new Histogram({
    name: 'oncepay_batch_rows',
    help: 'Rows per statement that a batcher sent.',
    labelNames: ['batcher'],
    buckets: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    registers: [registry],
  });
  const attempts = count('oncepay_operation_attempts_total', 'Attempts at operations.', ['operation', 'phase']);
  const anomalies = count('oncepay_anomalies_total', 'Facts that do not fit, by kind.', ['kind']);
  const webhooks = count('oncepay_webhooks_total', 'Webhooks by what became of them.', ['provider', 'outcome']);
  const outbox = count('oncepay_outbox_events_total', 'Outbox rows by what became of them.', ['outcome']);
  const deleted = count('oncepay_retention_deleted_total', 'Rows past their retention.', ['table']);
  const callsOf = remembered((provider, operation, outcome) => calls.labels(provider, operation, outcome));
  const attemptsOf = remembered((operation, phase) => attempts.labels(operation, phase));
  return {
    observeProviderCall: (provider, operation, outcome, duration_ms) =>
      callsOf(provider, operation, outcome).observe(duration_ms / 1000),
    countAttempt: (operation, phase) => attemptsOf(operation, phase).inc(),
    countAnomaly: (kind) => anomalies.labels(kind).inc(),
    countWebhook: (provider, outcome) => webhooks.labels(provider, outcome).inc(),
    countOutbox: (outcome, rows = 1) => outbox.labels(outcome).inc(rows),
    countDeleted: (table, rows) => deleted.labels(table).inc(rows),
    observeBatch: (batcher, rows) => batches.labels(batcher).observe(rows),
  };
}

function gauges(registry: Registry): Pick<Metrics, 'watchPool' | 'watchBatcher' | 'watchBacklog'> {
  const batchers = new Map<string, () => number>();
  new Gauge({
    name: 'oncepay_batcher_queued',
    help: 'Rows that wait for the next batch.',
    labelNames: ['batcher'],
    registers: [registry],
    collect() {
      for (const [name, queued] of batchers) this.labels(name).set(queued());
    },
  });
  return {
    watchBatcher: (batcher, queued) => void batchers.set(batcher, queued),
    watchPool(read) {
      new Gauge({
        name: 'oncepay_database_connections',
        help: 'Connections of the pool, and who waits for one.',
        labelNames: ['state'],
        registers: [registry],
        collect() {
          const state = read();
          this.labels('total').set(state.total);
          this.labels('idle').set(state.idle);
          this.labels('waiting').set(state.waiting);
        },
      });
    },
    watchBacklog: (read) => watchBacklog(registry, read),
  };
}

function watchBacklog(registry: Registry, read: () => Promise<Backlog>): void {
  // The registry collects all metrics at once: the three gauges share one reading.
  let reading: Promise<Backlog | null> | null = null;
  const readOnce = () =>
    (reading ??= Promise.race([read().catch(() => null), delay(BACKLOG_LIMIT_MS, null, { ref: false })]).finally(
      () => (reading = null),
    ));
  const perWork = (name: string, help: string, pick: (waiting: Waiting) => number) =>
    new Gauge({
      name,
      help,
      labelNames: ['work'],
      // Every process reads the same database: where several serve, their numbers are not added up.
      aggregator: 'max',
      registers: [registry],
      async collect() {
        const backlog = await readOnce();
        this.reset();
        for (const [work, waiting] of Object.entries(backlog ?? {}) as [string, Waiting][]) {
          this.labels(work).set(pick(waiting));
        }
      },
    });
  perWork('oncepay_backlog', 'Unfinished work: unknown outcomes, reviews, events not published.', (w) => w.count);
  perWork('oncepay_backlog_oldest_age_seconds', 'Age of the oldest piece of it.', (w) => w.oldest_age_s);
  new Gauge({
    name: 'oncepay_backlog_known',
    help: '1 where the database answered this scrape, 0 where the backlog is not known.',
    aggregator: 'max',
    registers: [registry],
    async collect() {
      this.set((await readOnce()) === null ? 0 : 1);
    },
  });
}
