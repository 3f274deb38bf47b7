import type pg from 'pg';

/**
 * Whether a client may give commands over Kafka: it exists, is not disabled and has the scope `commands`. Asked in the
 * command's transaction; who may write to the topics is the broker's business.
 */
export async function mayCommand(tx: pg.PoolClient, client_id: string): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'client_may_command',
    text: `SELECT FROM api_client WHERE id = $1 AND disabled_at IS NULL AND 'commands' = ANY(scopes)`,
    values: [client_id],
  });
  return rowCount === 1;
}
