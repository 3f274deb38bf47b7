import type pg from 'pg';
import { newId } from '../domain/id.js';
import type { Fact } from '../domain/fact.js';
import type { Found } from './find-operation.js';

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
           set type = excluded.type, outcome = excluded.outcome, payment_id = excluded.payment_id,
               operation_id = excluded.operation_id, fact = excluded.fact`,
    values: [
      newId(),
      provider,
      event.event_id,
      storable(event.type),
      result.payment_id ?? null,
      result.operation_id ?? null,
      result.outcome,
      factText(event),
    ],
  });
  return result.outcome;
}

/**
 * Counts a failure to apply an event; at `failures_max` it is parked, also one that an operator had set aside. Outside
 * the transaction that failed.
 * @returns what it is now. Where another delivery has got through meanwhile, that stands: `failing` then only says that
 * this one did not
 */
export async function recordFailure(
  pool: pg.Pool,
  provider: string,
  event: EventToKeep,
  failure: Partial<Found> & { readonly reason: string; readonly failures_max: number },
): Promise<'failing' | 'parked'> {
  const { rows } = await pool.query<{ outcome: 'failing' | 'parked' }>({
    name: 'provider_event_failure',
    text: `insert into provider_event as e (id, provider, event_id, type, outcome, fact, failures, last_error, payment_id, operation_id)
           values ($1, $2, $3, $4, case when $7::int <= 1 then 'parked' else 'failing' end, $5, 1, $6, $8, $9)
           on conflict (provider, event_id) do update
           set failures = e.failures + 1, last_error = excluded.last_error,
               outcome = case when e.failures + 1 >= $7::int then 'parked' else 'failing' end
           where e.failures > 0 and e.outcome in ('failing', 'parked', 'ignored')
           returning outcome`,
    values: [
      newId(),
      provider,
      event.event_id,
      storable(event.type),
      factText(event),
      storable(failure.reason),
      failure.failures_max,
      failure.payment_id ?? null,
      failure.operation_id ?? null,
    ],
  });
  return rows[0]?.outcome ?? 'failing';
}

/** Whether an open anomaly says already that there is no operation of this reference. Walks what is unresolved only. */
export async function isKnownToBeMissing(tx: pg.PoolClient, reference: string): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'anomaly_of_reference',
    text: `select 1 from anomaly
           where resolved_at is null and kind = 'unknown_operation' and detail ->> 'reference' = $1 limit 1`,
    values: [reference],
  });
  return rowCount === 1;
}

function factText(event: EventToKeep): string | null {
  if (!event.fact) return null;
  return JSON.stringify(event.fact, (_name, value: unknown) => {
    if (typeof value === 'string') return storable(value);
    return typeof value === 'bigint' ? value.toString() : value;
  });
}

/** PostgreSQL has no place for a NUL in a text, nor for half a character in JSON; a provider's words may have both. */
function storable(text: string): string {
  return Buffer.from(text).toString().replaceAll('\0', '\ufffd');
}
