import cluster, { type Worker } from 'node:cluster';
import type { Registry } from 'prom-client';
import { OncepayError } from '../domain/errors.js';
import type { Order, ToParent, ToWorker } from './messages.js';

/** The parent answers within what its slowest worker may take; where it does not, it is about to end. */
const TOTAL_LIMIT_MS = 5_000;
/** For the last words of a worker. */
const NOTED_LIMIT_MS = 1_000;

/** The parent, seen from a worker. */
export class ParentLink {
  private asked = 0;
  private readonly totals = new Map<number, (text: string | null) => void>();
  private noted: () => void = () => undefined;
  private takeOrder: (order: Order) => void = () => undefined;

  private constructor(
    private readonly worker: Worker,
    private readonly registry: Registry,
  ) {
    // Counts that can't be read are not told; the parent goes on with those that it was told before.
    worker.on('message', (message: ToWorker) => void this.hear(message).catch(() => undefined));
  }

  /**
   * Asks the parent what to do. Until then there is nothing to drain: should the parent end, this process ends at once.
   * @param registry what this process counts, for the total
   */
  static async join(registry: Registry): Promise<{ readonly link: ParentLink; readonly order: Order }> {
    const { worker } = cluster;
    if (worker === undefined) throw new Error('This is not started by hand: `npm start` with PROCESSES set does it');
    const link = new ParentLink(worker, registry);
    const order = await new Promise<Order>((resolve) => {
      link.takeOrder = resolve;
      link.tell({ type: 'order_wanted' });
    });
    return { link, order };
  }

  /** Calls `end` when the parent is gone: nobody hands on connections any more, and nobody would replace us. */
  onParentGone(end: () => void): void {
    this.worker.once('disconnect', () => {
      // Without it Node ends this process on the spot, and with it the charges under way.
      this.worker.exitedAfterDisconnect = true;
      end();
    });
  }

  ready(): void {
    this.tell({ type: 'ready' });
  }

  /** Resolves when the parent knows, or is not there to know. */
  failed(reason: string): Promise<void> {
    return this.lastWords({ type: 'failed', reason });
  }

  /** After the drain: what was counted up to the end goes into the total. */
  async leave(): Promise<void> {
    await this.lastWords({ type: 'leaving', metrics: await this.registry.getMetricsAsJSON() });
  }

  /** The metrics of all workers together. @throws OncepayError `unavailable` when the parent does not tell them */
  async totalMetrics(): Promise<string> {
    const id = (this.asked += 1);
    const text = await new Promise<string | null>((resolve) => {
      const timer = setTimeout(() => resolve(null), TOTAL_LIMIT_MS);
      this.totals.set(id, (answer) => {
        clearTimeout(timer);
        resolve(answer);
      });
      this.tell({ type: 'total_wanted', id });
    });
    this.totals.delete(id);
    // A part of them would look as if everything else had been counted back.
    if (text === null) throw new OncepayError('unavailable', 'The metrics are not known now.', { retry_after_s: 1 });
    return text;
  }

  private async hear(message: ToWorker): Promise<void> {
    switch (message.type) {
      case 'order':
        this.takeOrder(message.order);
        return;
      case 'noted':
        this.noted();
        return;
      case 'total':
        this.totals.get(message.id)?.(message.text);
        return;
      case 'snapshot_wanted':
        this.tell({ type: 'snapshot', id: message.id, metrics: await this.registry.getMetricsAsJSON() });
        return;
    }
  }

  private async lastWords(message: ToParent): Promise<void> {
    if (!this.worker.isConnected()) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, NOTED_LIMIT_MS);
      this.noted = () => {
        clearTimeout(timer);
        resolve();
      };
      this.tell(message);
    });
  }

  private tell(message: ToParent): void {
    // A failure means that the parent is gone, which 'disconnect' tells.
    if (this.worker.isConnected()) this.worker.send(message, () => undefined);
  }
}
