import { expect } from 'vitest';
import { keyHash } from '../../src/domain/command-hash.js';
import type { Movement } from '../../src/simulator/records.js';
import type { TestSystem } from './app.js';

interface OperationRow {
  readonly id: string;
  readonly payment_id: string;
  readonly status: string;
  readonly provider_key: string;
  readonly attempts_started: number;
  readonly attempts_finished: number;
}

/**
 * What holds at every moment at which nothing is under way, whatever was done before. Call it at the end of a file of
 * tests: it looks at everything that they left.
 */
export async function checkInvariants(system: TestSystem): Promise<void> {
  await checkMoney(system);
  await checkInFlight(system);
  await checkRecords(system);
  await checkEvents(system);
}

/** At the provider: one movement per operation, at most one charge per payment, none that we deny. */
async function checkMoney(system: TestSystem): Promise<void> {
  const taken = await heldOrTaken(system);
  const byReference = groupBy(taken, ({ reference }) => reference ?? '');
  for (const [reference, movements] of byReference) {
    expect(movements, `movements of ${reference}`).toHaveLength(1);
  }
  const operations = await system.query<OperationRow>(`select * from operation where kind = 'charge'`);
  for (const [payment_id, tries] of groupBy(operations, (operation) => operation.payment_id)) {
    const moved = tries.filter(({ provider_key }) => byReference.has(provider_key));
    const twice = await system.query(`select 1 from anomaly where payment_id = $1 and kind = 'paid_twice'`, [
      payment_id,
    ]);
    expect(moved.length, `movements of payment ${payment_id}`).toBeLessThanOrEqual(twice.length > 0 ? 2 : 1);
    for (const operation of tries) {
      const { attempts_started, attempts_finished } = operation;
      expect(attempts_finished, `attempts of ${operation.id}`).toBeLessThanOrEqual(attempts_started);
      const isTaken = operation.status === 'succeeded' || operation.status === 'authorized';
      if (operation.status === 'processing') continue;
      expect(byReference.has(operation.provider_key), `operation ${operation.id} is ${operation.status}`).toBe(isTaken);
    }
  }
}

/** Charges, and authorizations that still hold money: one that was canceled or has expired takes nothing. */
async function heldOrTaken(system: TestSystem): Promise<Movement[]> {
  const movements = await system.simulator.movements();
  const isOver = async ({ kind, reference }: Movement): Promise<boolean> => {
    if (kind !== 'authorization') return false;
    const payments = await system.simulator.payments(reference ?? '');
    return payments.every(({ status }) => status === 'canceled' || status === 'failed');
  };
  const taken: Movement[] = [];
  for (const movement of movements) {
    if (movement.kind !== 'charge' && movement.kind !== 'authorization') continue;
    if (!(await isOver(movement))) taken.push(movement);
  }
  return taken;
}

/** What `GET /payments?status=processing` finds payments by (docs/adr/0064). */
async function checkInFlight(system: TestSystem): Promise<void> {
  const lost = await system.query(
    `select id from payment p where status = 'processing' and not exists (
       select from operation o where o.payment_id = p.id and o.status = 'processing' and o.kind <> 'refund')`,
  );
  expect(lost, 'processing, with nothing in flight').toEqual([]);
}

/** One key, one operation at most; stored answers are whole and say what they said. */
async function checkRecords(system: TestSystem): Promise<void> {
  const records = await system.query<{
    client_id: string;
    key: string;
    state: string;
    http_status: number;
    body: string;
  }>('select client_id, key, state, http_status, body from idempotency_record');
  const operations = await system.query<{ key_hash: Buffer; payment_id: string }>(
    'select key_hash, payment_id from operation where key_hash is not null',
  );
  for (const record of records) {
    const hash = keyHash(record.client_id, record.key);
    const made = operations.filter((operation) => operation.key_hash.equals(hash));
    expect(made.length, `operations of key ${record.key}`).toBeLessThanOrEqual(1);
    if (record.state !== 'done') continue;
    const body = JSON.parse(record.body) as { id?: string; status: unknown };
    if (record.http_status >= 400) expect(body.status).toBe(record.http_status);
    else expect(body.status, `stored answer of ${record.key}`).not.toBe('processing');
  }
}

/** Events are ordered by a sequence that never repeats and never passes the payment's version. */
async function checkEvents(system: TestSystem): Promise<void> {
  const rows = await system.query<{
    id: string;
    version: number;
    status: string;
    history: { to: string }[];
    sequences: number[];
  }>(
    `select p.id, p.version, p.status, p.history,
            array(select e.sequence from outbox_event e where e.key = p.id::text order by e.sequence) as sequences
     from payment p`,
  );
  for (const { id, version, status, history, sequences } of rows) {
    expect(new Set(sequences).size, `sequences of ${id}`).toBe(sequences.length);
    expect(Math.max(0, ...sequences)).toBeLessThanOrEqual(version);
    expect(history.at(-1)?.to ?? 'processing', `history of ${id}`).toBe(status);
  }
}

function groupBy<Item>(items: readonly Item[], nameOf: (item: Item) => string): Map<string, Item[]> {
  const groups = new Map<string, Item[]>();
  for (const item of items) groups.set(nameOf(item), [...(groups.get(nameOf(item)) ?? []), item]);
  return groups;
}
