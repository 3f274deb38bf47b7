import type pg from 'pg';
import { newId } from '../domain/id.js';
import type { AnomalyKind, Anomaly, HistoryEntry } from '../domain/change.js';
import { anomalyId } from '../domain/change.js';
import type { Operation, Payment } from '../domain/payment.js';
import { operationColumns, paymentColumns, toOperation, toPayment } from './rows.js';
import type { OutboxRow } from './settle.js';

type Connection = pg.Pool | pg.PoolClient;

/** A payment with what decides about it: its charges, captures and cancels, and refunds as far as asked for. */
export interface Dossier {
  readonly payment: Payment;
  readonly operations: readonly Operation[];
  readonly known_anomalies: ReadonlySet<string>;
  /** The database's clock (milliseconds), which is what leases, backoff and expiry go by. */
  readonly now: Date;
}

const LOCK_PAYMENT = {
  name: 'payment_lock',
  text: `select ${paymentColumns('p')} from payment p where p.id = $1 for no key update`,
};
const READ_PAYMENT = { name: 'payment_read', text: `select ${paymentColumns('p')} from payment p where p.id = $1` };
const FIND_BY_NAME = {
  name: 'payment_by_external_id',
  // Of two that a new one would meet (the provider's space, the client's own), its own client's comes first.
  text: `select id from payment where external_payment_id = $3 and (provider = $2 or client_id = $1)
         order by client_id = $1 desc, provider = $2 desc limit 1`,
};
// Refunds can be many: only those asked for, by id or by the provider's name for them.
const OPERATIONS = {
  name: 'payment_operations',
  text: `select ${operationColumns('o')} from operation o
         where o.payment_id = $1 and (o.kind <> 'refund' or o.id = $2 or o.provider_refund_id = $3 or o.provider_key = $4 or o.key_hash = $5)
         order by o.created_at, o.id`,
};
const ANOMALIES = { name: 'payment_anomalies', text: 'select kind, operation_id from anomaly where payment_id = $1' };
const NOW = { name: 'clock', text: `select date_trunc('milliseconds', clock_timestamp()) as now` };

export interface RefundSelection {
  readonly operation_id?: string;
  readonly provider_refund_id?: string;
  readonly provider_key?: string;
  readonly key_hash?: Buffer;
}

/** Locks a payment until the transaction ends and reads what decides about it. Undefined: there is none. */
export async function lockDossier(
  tx: pg.PoolClient,
  payment_id: string,
  refunds: RefundSelection = {},
): Promise<Dossier | undefined> {
  const locked = await tx.query<Record<string, unknown>>({ ...LOCK_PAYMENT, values: [payment_id] });
  return locked.rows[0] && dossierOf(tx, toPayment(locked.rows[0]), refunds);
}

/** The same without a lock, to look at before a provider is called; whoever writes locks and decides again. */
export async function readDossier(
  connection: Connection,
  payment_id: string,
  refunds: RefundSelection = {},
): Promise<Dossier | undefined> {
  const payment = await readPayment(connection, payment_id);
  return payment && dossierOf(connection, payment, refunds);
}

async function dossierOf(connection: Connection, payment: Payment, refunds: RefundSelection): Promise<Dossier> {
  const values = [
    payment.id,
    refunds.operation_id ?? null,
    refunds.provider_refund_id ?? null,
    refunds.provider_key ?? null,
    refunds.key_hash ?? null,
  ];
  const operations = await connection.query<Record<string, unknown>>({ ...OPERATIONS, values });
  const anomalies = await connection.query<{ kind: AnomalyKind; operation_id: string | null }>({
    ...ANOMALIES,
    values: [payment.id],
  });
  return {
    payment,
    operations: operations.rows.map(toOperation),
    known_anomalies: new Set(anomalies.rows.map((row) => anomalyId(row.kind, row.operation_id))),
    now: await databaseNow(connection),
  };
}

export async function readPayment(connection: Connection, payment_id: string): Promise<Payment | undefined> {
  const { rows } = await connection.query<Record<string, unknown>>({ ...READ_PAYMENT, values: [payment_id] });
  return rows[0] && toPayment(rows[0]);
}

/** The id of the payment that a new one of this name would meet. */
export async function findByExternalId(
  connection: Connection,
  name: { readonly client_id: string; readonly provider: string; readonly external_payment_id: string },
): Promise<string | undefined> {
  const values = [name.client_id, name.provider, name.external_payment_id];
  const { rows } = await connection.query<{ id: string }>({ ...FIND_BY_NAME, values });
  return rows[0]?.id;
}

export async function databaseNow(connection: Connection): Promise<Date> {
  const { rows } = await connection.query<{ now: Date }>(NOW);
  if (!rows[0]) throw new Error('the clock gave no row');
  return rows[0].now;
}

/** Writes a payment under its lock: `version` must have grown over what was read. */
export async function updatePayment(
  tx: pg.PoolClient,
  payment: Payment,
  history: readonly HistoryEntry[],
): Promise<void> {
  await tx.query({
    name: 'payment_update',
    text: `update payment
           set version = $2, status = $3, amount_captured_minor = $4, amount_refunded_minor = $5, refund_reserved_minor = $6,
               provider_payment_id = $7, payment_method = $8, failure_code = $9, failure_message = $10, next_action_type = $11,
               next_action_url = $12, updated_at = $13, history = history || $14::jsonb
           where id = $1`,
    values: [
      payment.id,
      payment.version,
      payment.status,
      payment.amount_captured_minor,
      payment.amount_refunded_minor,
      payment.refund_reserved_minor,
      payment.provider_payment_id,
      payment.payment_method,
      payment.failure?.code ?? null,
      payment.failure?.message ?? null,
      payment.next_action?.type ?? null,
      payment.next_action?.url ?? null,
      payment.updated_at,
      JSON.stringify(history),
    ],
  });
}

/** Writes an operation under its payment's lock. Attempts are counted by statements of their own and left alone here. */
export async function updateOperation(tx: pg.PoolClient, operation: Operation, check_at: Date | null): Promise<void> {
  await tx.query({
    name: 'operation_update',
    text: `update operation
           set status = $2, amount_minor = $3, provider_payment_id = $4, provider_refund_id = $5, failure_code = $6, failure_message = $7,
               closed_at = $8, needs_review_at = $9, resolved_by = $10, check_at = $11, updated_at = $12,
               checks = case when status = $2 then checks else 0 end
           where id = $1`,
    values: [
      operation.id,
      operation.status,
      operation.amount_minor,
      operation.provider_payment_id,
      operation.provider_refund_id,
      operation.failure?.code ?? null,
      operation.failure?.message ?? null,
      operation.closed_at,
      operation.needs_review_at,
      operation.resolved_by,
      check_at,
      operation.updated_at,
    ],
  });
}

/** Inserts an operation under its payment's lock. @throws 23505 where a constraint says that it exists already. */
export async function insertOperation(tx: pg.PoolClient, operation: Operation, check_at: Date | null): Promise<void> {
  await tx.query({
    name: 'operation_insert',
    text: `insert into operation (id, payment_id, kind, origin, try_number, status, amount_minor, idempotency_key, key_hash, command_hash,
             provider_key, payment_method, reason, excess_operation_id, provider_payment_id, provider_refund_id, failure_code, failure_message,
             attempts_started, first_attempt_at, last_attempt_at, check_at, saga_id, step_name, traceparent, created_at, updated_at)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $20, $21, $22, $23, $24, $25, $25)`,
    values: [
      operation.id,
      operation.payment_id,
      operation.kind,
      operation.origin,
      operation.try_number,
      operation.status,
      operation.amount_minor,
      operation.idempotency_key,
      operation.key_hash,
      operation.command_hash,
      operation.provider_key,
      operation.payment_method,
      operation.reason,
      operation.excess_operation_id,
      operation.provider_payment_id,
      operation.provider_refund_id,
      operation.failure?.code ?? null,
      operation.failure?.message ?? null,
      operation.attempts_started,
      operation.first_attempt_at,
      check_at,
      operation.saga_id,
      operation.step_name,
      operation.traceparent,
      operation.created_at,
    ],
  });
}

export async function insertEvents(tx: pg.PoolClient, events: readonly OutboxRow[]): Promise<void> {
  for (const event of events) {
    await tx.query({
      name: 'outbox_insert',
      text: `insert into outbox_event (id, topic, key, sequence, type, data, traceparent) values ($1, $2, $3, $4, $5, $6, $7)`,
      values: [event.id, event.topic, event.key, event.sequence, event.type, event.data, event.traceparent],
    });
  }
}

export async function insertAnomalies(
  tx: pg.PoolClient,
  payment_id: string | null,
  anomalies: readonly Anomaly[],
): Promise<void> {
  for (const anomaly of anomalies) {
    await tx.query({
      name: 'anomaly_insert',
      text: `insert into anomaly (id, payment_id, operation_id, kind, detail) values ($1, $2, $3, $4, $5)`,
      values: [newId(), payment_id, anomaly.operation_id, anomaly.kind, JSON.stringify(anomaly.detail)],
    });
  }
}

/** What a timeline shows and no other row holds. */
export async function insertTimelineEntry(
  connection: Connection,
  entry: {
    readonly payment_id: string;
    readonly operation_id: string | null;
    readonly type: 'request' | 'operator';
    readonly detail: Readonly<Record<string, unknown>>;
  },
): Promise<void> {
  await connection.query({
    name: 'timeline_insert',
    text: `insert into timeline_entry (id, payment_id, operation_id, type, detail) values ($1, $2, $3, $4, $5)`,
    values: [newId(), entry.payment_id, entry.operation_id, entry.type, JSON.stringify(entry.detail)],
  });
}
