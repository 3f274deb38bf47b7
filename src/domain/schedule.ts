import type { Operation } from './payment.js';

/** How reconciliation paces itself. Durations in milliseconds. */
export interface Pace {
  /** The first pause; each further one is twice as long. */
  readonly first_ms: number;
}

const LONGEST_MS = 15 * 60_000;
/** A customer takes minutes, an authorization days: asking every second would only cost. */
const SLOW_FACTOR = 15;
const SLOWEST_MS = 60 * 60_000;
/** With the longest pause about five hours of asking. A webhook or an operator can still end it after that. */
export const UNKNOWN_CHECKS_MAX = 30;
/** A declined try that is not closed is closed before the payment is paid again; until then a few looks are enough. */
const DECLINED_CHECKS_MAX = 8;

/**
 * When to ask about an operation next, by the time `now`; null: there is nothing to ask. Capped exponential backoff with
 * jitter (half of the pause is random), so that an outage does not end in a stampede.
 * @param checks how often reconciliation has asked in this state
 */
export function nextCheck(
  operation: Operation,
  checks: number,
  now: Date,
  pace: Pace,
  random: () => number = Math.random,
): Date | null {
  const pause = pauseOf(operation, checks, pace);
  if (pause === null) return null;
  return new Date(now.getTime() + pause / 2 + (random() * pause) / 2);
}

function pauseOf(operation: Operation, checks: number, { first_ms }: Pace): number | null {
  const grown = first_ms * 2 ** Math.min(checks, 30);
  switch (operation.status) {
    case 'processing':
      return operation.needs_review_at === null ? Math.min(grown, LONGEST_MS) : null;
    case 'requires_action':
    case 'authorized':
      return Math.min(grown * SLOW_FACTOR, SLOWEST_MS);
    case 'failed':
      if (operation.kind !== 'charge' || operation.closed_at !== null || checks >= DECLINED_CHECKS_MAX) return null;
      return Math.min(grown, LONGEST_MS);
    case 'succeeded':
    case 'void':
      return null;
  }
}
