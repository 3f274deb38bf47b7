import cluster, { type Worker } from 'node:cluster';
import type { Order, Snapshot, ToParent, ToWorker } from './messages.js';
import { growing } from './metrics-total.js';

/** How a worker ended, as the operating system tells it. */
export interface Exit {
  readonly code: number | null;
  readonly signal: string | null;
  readonly lived_ms: number;
}

export interface WorkerEvents {
  readonly onReady: () => void;
  /** It can't serve, and says why; it ends by itself. */
  readonly onFailed: (reason: string) => void;
  readonly onEnd: (exit: Exit) => void;
  /** It was asked for the metrics of all. Null: they can't be told now. */
  readonly collectAll: () => Promise<string | null>;
}

/** A worker whose event loop is slower than this to answer is counted by what it said last. */
const SNAPSHOT_LIMIT_MS = 3_000;

/** A worker, seen from the parent. */
export class WorkerProcess {
  readonly pid: number;
  /** What it said last of its metrics. */
  private latest: Snapshot = [];
  private is_ready = false;
  private asked = 0;
  private readonly waiting = new Map<number, () => void>();
  private readonly worker: Worker;
  private readonly started_at = performance.now();

  constructor(
    private readonly order: Order,
    private readonly events: WorkerEvents,
  ) {
    this.worker = cluster.fork();
    this.pid = this.worker.process.pid ?? 0;
    this.worker.on('message', (message: ToParent) => void this.hear(message));
    // What could not be sent to one that is just ending. Its end is told by 'exit'.
    this.worker.on('error', () => undefined);
    closeWhatIsLost(this.worker);
    this.worker.once('exit', (code: number | null, signal: string | null) => {
      for (const goOn of this.waiting.values()) goOn();
      events.onEnd({ code, signal, lived_ms: performance.now() - this.started_at });
    });
  }

  get isReady(): boolean {
    return this.is_ready;
  }

  /** What it had counted when it was last asked, for after its end. */
  get counted(): Snapshot {
    return growing(this.latest);
  }

  /** Its metrics as they are now; of one that does not answer in time, what it had counted. */
  async snapshot(): Promise<Snapshot> {
    if (!this.is_ready || !this.worker.isConnected()) return this.counted;
    const id = (this.asked += 1);
    const has_answered = await new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => resolve(false), SNAPSHOT_LIMIT_MS);
      this.waiting.set(id, () => {
        clearTimeout(timer);
        resolve(!this.worker.isDead());
      });
      this.tell({ type: 'snapshot_wanted', id });
    });
    this.waiting.delete(id);
    return has_answered ? this.latest : this.counted;
  }

  /** It drains and ends; for one that has not begun to serve the signal itself is the end. */
  terminate(): void {
    this.worker.process.kill('SIGTERM');
  }

  kill(): void {
    this.worker.process.kill('SIGKILL');
  }

  private async hear(message: ToParent): Promise<void> {
    switch (message.type) {
      case 'order_wanted':
        this.tell({ type: 'order', order: this.order });
        return;
      case 'ready':
        this.is_ready = true;
        this.events.onReady();
        return;
      case 'failed':
        this.events.onFailed(message.reason);
        this.tell({ type: 'noted' });
        return;
      case 'leaving':
        this.latest = message.metrics;
        this.tell({ type: 'noted' });
        return;
      case 'snapshot':
        this.latest = message.metrics;
        this.waiting.get(message.id)?.();
        return;
      case 'total_wanted':
        this.tell({ type: 'total', id: message.id, text: await this.events.collectAll() });
    }
  }

  private tell(message: ToWorker): void {
    if (this.worker.isConnected()) this.worker.send(message);
  }
}

/**
 * A connection that is handed to a worker which dies before it takes it is forgotten by Node's round robin: it stays
 * open in the parent, and its caller waits for an answer that nobody will give (nodejs/node-v0.x-archive#7006, and seen
 * with Node 20). Closed, its caller knows at once and tries again. Node closes the handle of one that was taken, and
 * closing it twice is allowed.
 */
function closeWhatIsLost({ process: child }: Worker): void {
  const send = child.send.bind(child) as (...args: unknown[]) => boolean;
  let handed: { close(): void } | undefined;
  child.send = (...args: unknown[]): boolean => {
    const [, handle] = args;
    if (isClosable(handle)) handed = handle;
    return send(...args);
  };
  child.once('exit', () => handed?.close());
}

function isClosable(handle: unknown): handle is { close(): void } {
  return typeof handle === 'object' && handle !== null && 'close' in handle && typeof handle.close === 'function';
}
