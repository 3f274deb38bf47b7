import type pg from 'pg';
import { uuidv7 } from 'uuidv7';
import type { Fact } from '../domain/fact.js';

export type EventOutcome = 'applied' | 'no_change' | 'foreign' | 'unknown_operation' | 'ignored' | 'failing' | 'parked';

/** What is kept of a notification: never its raw body. */
export interface EventToKeep {
  readonly event_id: string;
  readonly type: string;
  readonly fact: Fact | null;
}

/** Keeps what an event said, in our words, and what became of it. */
export async function keepEvent(
  tx: pg.PoolClient,
  provider: string,
  event: EventToKeep,
  result: {
    readonly outcome: EventOutcome;
    readonly payment_id?: string | null;
    readonly operation_id?: string | null;
  },
): Promise<EventOutcome> {
  await tx.query({
    name: 'provider_event_keep',
    text: `insert into provider_event (id, provider, event_id, type, payment_id, operation_id, outcome, fact)
           values ($1, $2, $3, $4, $5, $6, $7, $8)
           on conflict (provider, event_id) do update
           set outcome = excluded.outcome, payment_id = excluded.payment_id, operation_id = excluded.operation_id, fact = excluded.fact`,
    values: [
      uuidv7(),
      provider,
      event.event_id,
      event.type,
      result.payment_id ?? null,
      result.operation_id ?? null,
      result.outcome,
      factText(event),
    ],
  });
  return result.outcome;
}

/** Counts a failure to apply an event; at `failures_max` it is parked. Outside the transaction that failed. */
export async function recordFailure(
  pool: pg.Pool,
  provider: string,
  event: EventToKeep,
  reason: string,
  failures_max: number,
): Promise<EventOutcome> {
  const { rows } = await pool.query<{ outcome: EventOutcome }>({
    name: 'provider_event_failure',
    text: `insert into provider_event as e (id, provider, event_id, type, outcome, fact, failures, last_error)
           values ($1, $2, $3, $4, case when $7::int <= 1 then 'parked' else 'failing' end, $5, 1, $6)
           on conflict (provider, event_id) do update
           set failures = e.failures + 1, last_error = excluded.last_error,
               outcome = case when e.failures + 1 >= $7::int then 'parked' else 'failing' end
           returning outcome`,
    values: [uuidv7(), provider, event.event_id, event.type, factText(event), reason, failures_max],
  });
  return rows[0]?.outcome ?? 'failing';
}

function factText(event: EventToKeep): string | null {
  if (!event.fact) return null;
  return JSON.stringify(event.fact, (_name, value: unknown) => (typeof value === 'bigint' ? value.toString() : value));
}
