import type { Config } from '../config.js';
import type { Logger } from '../logger.js';
import type { PaymentsContext } from '../payments/context.js';
import { dailyRound } from './daily.js';
import { startLoop } from './loop.js';
import { reconcileRound } from './reconciliation.js';
import { recoverRound } from './recovery.js';
import { sweep } from './retention.js';

export interface JobsDependencies {
  readonly config: Config;
  readonly payments: PaymentsContext;
  readonly logger: Logger;
}

export interface Jobs {
  /** Waits for the rounds under way. */
  stop(): Promise<void>;
}

const RETENTION_HOUR_UTC = 3;
const RETENTION_LOOK_MS = 60_000;
const HOUR_MS = 60 * 60_000;

/** Everything that runs beside the requests. Safe on several instances at once. */
export function startJobs({ config, payments, logger }: JobsDependencies): Jobs {
  let isStopped = false;
  const sweepOnce = () =>
    sweep({
      pool: payments.pool,
      logger,
      idempotency_retention_ms: config.retention.idempotency_h * HOUR_MS,
      processed_event_retention_ms: config.retention.processed_event_h * HOUR_MS,
      countDeleted: (table, rows) => {
        payments.metrics.countDeleted(table, rows);
      },
      isStopped: () => isStopped,
    });
  const retentionRound = dailyRound(RETENTION_HOUR_UTC, sweepOnce, () => new Date());
  const { recovery_interval_ms, reconcile_interval_ms } = config.timing;
  const loops = [
    startLoop({ name: 'recovery', interval_ms: recovery_interval_ms, round: () => recoverRound(payments), logger }),
    startLoop({
      name: 'reconciliation',
      interval_ms: Math.min(reconcile_interval_ms, 1_000),
      round: () => reconcileRound(payments),
      logger,
    }),
    startLoop({ name: 'retention', interval_ms: RETENTION_LOOK_MS, round: retentionRound, logger }),
  ];
  return {
    async stop() {
      isStopped = true;
      await Promise.all(loops.map((loop) => loop.stop()));
    },
  };
}
