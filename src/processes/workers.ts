import cluster from 'node:cluster';
import { Counter, Gauge, Registry } from 'prom-client';
import type { Config } from '../config.js';
import type { Logger } from '../logger.js';
import { type Snapshot, WORKER_ARGUMENT } from './messages.js';
import { addUp, totalText } from './metrics-total.js';
import { type Exit, WorkerProcess } from './worker-process.js';

export interface WorkersOptions {
  readonly count: number;
  /** For each of them. */
  readonly config: Config;
  readonly logger: Logger;
}

/** One of `count` places; who ends is followed by another in the same place. */
interface Place {
  readonly number: number;
  worker: WorkerProcess | null;
  /** Ends in a row that came soon after the start. */
  early_ends: number;
  restart: NodeJS.Timeout | null;
}

/** Who lives longer than this ended for another reason than its start. */
const STEADY_MS = 10_000;
const RESTART_FIRST_MS = 200;
const RESTART_MAX_MS = 5_000;

/** At once after the first end, then after pauses that double: one that can't live must not take the others' core. */
export function restartPause_ms(early_ends: number): number {
  return early_ends <= 1 ? 0 : Math.min(RESTART_MAX_MS, RESTART_FIRST_MS * 2 ** (early_ends - 2));
}

/** The processes that serve. Keeps `count` of them alive until it is stopped, and adds up what they count. */
export class Workers {
  private readonly places: readonly Place[];
  private readonly metrics = parentMetrics(() => this.ready.length);
  /** What those counted that have ended. */
  private past: Snapshot[] = [];
  private collecting: Promise<string | null> | null = null;
  private stopping = false;
  private settleStart: (failure: Error | null) => void = () => undefined;
  private settleStop: () => void = () => undefined;

  constructor(private readonly options: WorkersOptions) {
    this.places = Array.from({ length: options.count }, (_, index) => ({
      number: index + 1,
      worker: null,
      early_ends: 0,
      restart: null,
    }));
  }

  /** Resolves when all serve. @throws Error with the reason of the first that can't */
  async start(): Promise<void> {
    if (!cluster.isPrimary) {
      throw new Error(
        'PROCESSES: this process is itself a worker of what started it; set PROCESSES=1, or start it alone',
      );
    }
    cluster.setupPrimary({ args: [WORKER_ARGUMENT] });
    await new Promise<void>((resolve, reject) => {
      this.settleStart = (failure) => {
        if (failure === null) resolve();
        else reject(failure);
        this.settleStart = () => undefined;
      };
      for (const place of this.places) this.launch(place);
    });
  }

  /** All drain, at the same time. Resolves when the last has ended. */
  stop(): Promise<void> {
    this.stopping = true;
    for (const place of this.places) {
      if (place.restart !== null) clearTimeout(place.restart);
      place.worker?.terminate();
    }
    return new Promise((resolve) => {
      this.settleStop = resolve;
      if (this.alive.length === 0) resolve();
    });
  }

  /** kill -9 for all that are left. */
  kill(): void {
    for (const worker of this.alive) worker.kill();
  }

  private get alive(): WorkerProcess[] {
    return this.places.flatMap(({ worker }) => worker ?? []);
  }

  private get ready(): WorkerProcess[] {
    return this.alive.filter(({ isReady }) => isReady);
  }

  private launch(place: Place): void {
    const { logger, config } = this.options;
    // Jobs run in one place only: in every one they would ask the database for work N times as often, and find none.
    const order = { number: place.number, config, runs_jobs: place.number === 1 };
    const worker = new WorkerProcess(order, {
      onReady: () => {
        logger.info({ worker: place.number, pid: worker.pid }, 'a worker serves');
        if (this.ready.length === this.places.length) this.settleStart(null);
      },
      onFailed: (reason) => {
        logger.error({ worker: place.number, pid: worker.pid, reason }, 'a worker can not start');
        this.settleStart(new Error(reason));
      },
      onEnd: (exit) => this.ended(place, worker, exit),
      collectAll: () => this.collectAll(),
    });
    place.worker = worker;
  }

  private ended(place: Place, worker: WorkerProcess, { lived_ms, ...exit }: Exit): void {
    place.worker = null;
    if (worker.counted.length > 0) this.past.push(worker.counted);
    if (this.stopping) {
      if (this.alive.length === 0) this.settleStop();
      return;
    }
    place.early_ends = lived_ms < STEADY_MS ? place.early_ends + 1 : 0;
    const pause_ms = restartPause_ms(place.early_ends);
    const ending = { worker: place.number, pid: worker.pid, ...exit, lived_ms: Math.round(lived_ms), pause_ms };
    const is_asked_for = exit.code === 0;
    this.options.logger[is_asked_for ? 'info' : 'error'](ending, 'a worker ended; another takes its place');
    this.metrics.restarts.inc();
    place.restart = setTimeout(() => this.launch(place), pause_ms);
  }

  /** Asked for several times at once, it is made once. */
  private collectAll(): Promise<string | null> {
    this.collecting ??= this.collect()
      .catch((error: unknown) => {
        this.options.logger.warn({ err: error }, 'the metrics of the workers could not be added up');
        return null;
      })
      .finally(() => (this.collecting = null));
    return this.collecting;
  }

  private async collect(): Promise<string> {
    // Both at the same moment: who ends meanwhile must be in one of them, not in both.
    const past = [...this.past];
    const present = this.alive.map((worker) => worker.snapshot());
    const past_sum = await addUp(past);
    this.past = [past_sum, ...this.past.slice(past.length)];
    const own: Snapshot = await this.metrics.registry.getMetricsAsJSON();
    return totalText([own, past_sum, ...(await Promise.all(present))]);
  }
}

function parentMetrics(count: () => number): { readonly registry: Registry; readonly restarts: Counter } {
  const registry = new Registry();
  new Gauge({
    name: 'oncepay_workers',
    help: 'Processes that serve, of PROCESSES.',
    registers: [registry],
    collect() {
      this.set(count());
    },
  });
  const restarts = new Counter({
    name: 'oncepay_worker_restarts_total',
    help: 'Processes that ended and were started again.',
    registers: [registry],
  });
  return { registry, restarts };
}
