import type pg from 'pg';
import type { Batcher } from '../database/batcher.js';
import { createBatcher } from '../database/batcher.js';
import type { Logger } from '../logger.js';
import type { Metrics } from '../metrics.js';
import type { Providers } from '../providers/registry.js';
import type { BeginChargeItem, BeginChargeResult } from '../store/begin-charge.js';
import type { NewChargeItem, NewChargeResult } from '../store/reserve-and-begin.js';
import { beginCharges } from '../store/begin-charge.js';
import { reserveAndBeginCharges } from '../store/reserve-and-begin.js';
import type { ReserveItem, ReserveResult } from '../store/reserve.js';
import { reserve } from '../store/reserve.js';
import type { SettleItem } from '../store/settle.js';
import { settleCharges } from '../store/settle.js';

/** The statements of a charge's way, each a batcher: a crowd of requests shares them. */
export interface HotStatements {
  readonly reserve: Batcher<ReserveItem, ReserveResult>;
  /** Both at once, for charges. */
  readonly reserveAndBegin: Batcher<NewChargeItem, NewChargeResult>;
  readonly begin: Batcher<BeginChargeItem, BeginChargeResult>;
  readonly settle: Batcher<SettleItem, boolean>;
}

/** Where a process may be killed in the crash matrix. Production passes nothing. */
export type Step = 'reserved' | 'begun' | 'answered' | 'settled';
export type StepHook = (step: Step, operation_id: string) => Promise<void> | void;

export interface Timing {
  readonly lease_ms: number;
  /** For all tries of one request, or of one round of reconciliation, together. */
  readonly provider_timeout_ms: number;
  readonly reconcile_interval_ms: number;
}

/** What the use cases work with. */
export interface PaymentsContext {
  readonly pool: pg.Pool;
  readonly hot: HotStatements;
  readonly providers: Providers;
  readonly installation_id: string;
  readonly timing: Timing;
  readonly retention_ms: number;
  readonly auto_refund_anomalies: boolean;
  readonly metrics: Metrics;
  readonly logger: Logger;
  readonly atStep: StepHook;
}

export interface PaymentsOptions extends Omit<PaymentsContext, 'hot' | 'atStep'> {
  readonly atStep?: StepHook;
  /** Tests fill it. */
  readonly max_queue?: number;
}

/** Rows of a batch: enough that a crowd shares one flush, few enough that a statement stays a few milliseconds. */
const MAX_BATCH = 100;
/** Longer than nearly all statements take, so that a second one beside it is the exception. */
const OVERTAKE_AFTER_MS = 10;
/** About a second of work: past it, callers are told to come back rather than kept in memory. */
const MAX_QUEUE = 5_000;

export function createPayments(options: PaymentsOptions): PaymentsContext {
  const { pool, metrics, timing, max_queue = MAX_QUEUE } = options;
  const batcher = <Item, Result>(
    name: string,
    run: (items: readonly Item[]) => Promise<readonly Result[]>,
    keysOf: (item: Item) => readonly string[],
  ): Batcher<Item, Result> => {
    const made = createBatcher({
      name,
      run,
      keysOf,
      max_batch: MAX_BATCH,
      max_queue,
      max_concurrent: 2,
      overtake_after_ms: OVERTAKE_AFTER_MS,
      onBatch: (rows) => {
        metrics.observeBatch(name, rows);
      },
    });
    metrics.watchBatcher(name, () => made.queued);
    return made;
  };
  return {
    ...options,
    atStep: options.atStep ?? (() => undefined),
    hot: {
      reserve: batcher(
        'reserve',
        (items) => reserve(pool, items, timing.lease_ms),
        (item) => [`${item.client_id} ${item.key}`],
      ),
      reserveAndBegin: batcher(
        'reserve_and_begin',
        (items) => reserveAndBeginCharges(pool, items, timing.lease_ms),
        ({ lease, command }) => [
          `${lease.client_id} ${lease.key}`,
          `${command.provider} ${command.external_payment_id}`,
        ],
      ),
      begin: batcher(
        'begin',
        (items) => beginCharges(pool, items),
        (item) => [`${item.command.provider} ${item.command.external_payment_id}`],
      ),
      settle: batcher(
        'settle',
        (items) => settleCharges(pool, items),
        (item) => [item.payment.id],
      ),
    },
  };
}
