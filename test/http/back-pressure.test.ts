import { randomUUID } from 'node:crypto';
import type { Response } from 'supertest';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { newCharge, TestSystem } from '../support/app.js';
import { checkInvariants } from '../support/invariants.js';
import { soon } from '../support/soon.js';

/** Calls that may wait while both statements that reserve charges are under way. */
const MAX_QUEUE = 5;

let system: TestSystem;

beforeAll(async () => {
  system = await TestSystem.start({ max_queue: MAX_QUEUE });
});
afterAll(() => system.close(checkInvariants));

/** Stops every reservation until the returned function is called, or the test is over. */
async function holdReservations(): Promise<() => Promise<unknown>> {
  const tx = await system.database.pool.connect();
  onTestFinished(() => {
    tx.release(true);
  });
  await tx.query('begin');
  await tx.query('lock table idempotency_record in share row exclusive mode');
  return () => tx.query('commit');
}

async function statementsThatWait(count: number): Promise<void> {
  await soon(async () => {
    const waiting = await system.query(
      `select 1 from pg_locks where not granted and relation = 'idempotency_record'::regclass`,
    );
    expect(waiting).toHaveLength(count);
  });
}

it('callers past a full queue are sent away with 503 before memory grows, and nothing of theirs has happened', async () => {
  const letGo = await holdReservations();
  const charges = Array.from({ length: 2 + MAX_QUEUE + 8 }, () => ({ body: newCharge(), key: randomUUID() }));
  const refused = new Map<(typeof charges)[number], Response>();
  const send = (charge: (typeof charges)[number]): Promise<unknown> =>
    Promise.resolve(system.charge(charge.body, { key: charge.key })).then((answer) => {
      if (answer.status === 503) refused.set(charge, answer);
    });
  const [first, second, ...others] = charges;
  // Two statements are under way at once, the second as soon as the first has taken long.
  const sent = [send(first!)];
  await statementsThatWait(1);
  sent.push(send(second!));
  await statementsThatWait(2);
  sent.push(...others.map(send));
  await soon(() => {
    expect(refused.size).toBe(8);
  });

  for (const [{ body, key }, answer] of refused) {
    expect(answer.body).toMatchObject({ code: 'unavailable' });
    expect(Number(answer.headers['retry-after'])).toBeGreaterThanOrEqual(1);
    expect(await system.movements(body.external_payment_id)).toEqual([]);
    expect(await system.query('select 1 from idempotency_record where key = $1', [key])).toEqual([]);
  }
  await letGo();
  await Promise.all(sent);
  for (const { body, key } of charges) {
    expect(await system.chargeUntilFinal(body, { key })).toMatchObject({ status: 201 });
    expect(await system.movements(body.external_payment_id)).toHaveLength(1);
  }
});
