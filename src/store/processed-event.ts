import type pg from 'pg';

/**
 * Marks an event as processed by a consumer, in the transaction of its effect: check and mark are one statement (R2).
 * A second delivery at the same time waits here for the first to end, and then finds its mark.
 * @returns false where it was processed before: there is nothing to do
 */
export async function markProcessed(tx: pg.PoolClient, consumer_name: string, event_id: string): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'processed_event_mark',
    text: 'INSERT INTO processed_event (consumer_name, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING',
    values: [consumer_name, event_id],
  });
  return rowCount === 1;
}
