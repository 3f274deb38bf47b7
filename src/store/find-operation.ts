import type pg from 'pg';

type Connection = pg.Pool | pg.PoolClient;

/** An operation with the payment it is on. */
export interface Found {
  readonly payment_id: string;
  readonly operation_id: string;
}

/**
 * The operation of a reference (its provider key). By the payment's name, which is in the provider's metadata too and
 * has its index anyway: one on provider keys would cost every charge a write at a random place.
 */
export async function findByReference(
  connection: Connection,
  provider: string,
  external_payment_id: string,
  reference: string,
): Promise<Found | undefined> {
  const { rows } = await connection.query<Found>({
    name: 'operation_by_reference',
    text: `select o.payment_id, o.id as operation_id from payment p join operation o on o.payment_id = p.id
           where p.provider = $1 and p.external_payment_id = $2 and o.provider_key = $3`,
    values: [provider, external_payment_id, reference],
  });
  return rows[0];
}

/** The charge that a provider calls by this name. */
export async function findByProviderPayment(
  connection: Connection,
  provider: string,
  provider_payment_id: string,
): Promise<Found | undefined> {
  const { rows } = await connection.query<Found>({
    name: 'operation_by_provider_payment',
    text: `select o.payment_id, o.id as operation_id from operation o join payment p on p.id = o.payment_id
           where o.provider_payment_id = $2 and o.kind = 'charge' and p.provider = $1
           order by o.created_at limit 1`,
    values: [provider, provider_payment_id],
  });
  return rows[0];
}
