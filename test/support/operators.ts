import { randomUUID } from 'node:crypto';
import request from 'supertest';
import { Webhook } from 'standardwebhooks';
import { parseCommand } from '../../src/operations/command.js';
import { InvalidSignature } from '../../src/providers/provider.js';
import { type InstanceOptions, newCharge, type SystemOptions, type TestInstance, type TestSystem } from './app.js';
import { get } from './follow-up.js';

/** Of an instance that refuses the simulator's webhooks: what happened there is not told, only asked for. */
export const DEAF: Pick<SystemOptions, 'webhooks' | 'wrapProvider'> = {
  webhooks: true,
  wrapProvider: (provider) => ({
    ...provider,
    parseWebhook() {
      throw new InvalidSignature('this instance hears nothing');
    },
  }),
};
/** Of one that does. */
export const HEARING: InstanceOptions = { wrapProvider: (provider) => provider };
/** The money is taken; neither an answer nor a look-up tells of it. */
export const TAKEN_UNSEEN = 'pm_commit_then_error+pm_lookup_lag_600000';
/** The request is lost on its way. */
export const LOST = 'pm_late_commit_600000';

/** `npm run operations -- …` within the test's process. @returns what it printed */
export async function operate(system: TestSystem, ...args: string[]): Promise<string> {
  const lines: string[] = [];
  const { payments, database } = system.first;
  const print = (line: string): void => void lines.push(line);
  await parseCommand(args)({ payments, prisma: database.prisma, user: 'tester@here', print });
  return lines.join('\n');
}

export interface Unknown {
  readonly id: string;
  readonly external_payment_id: string;
  readonly key: string;
  readonly body: Readonly<Record<string, unknown>>;
  readonly operation_id: string;
}

/** A charge that got no answer. */
export async function unknownCharge(
  system: TestSystem,
  payment_method: string,
  more: Record<string, unknown> = {},
): Promise<Unknown> {
  const key = randomUUID();
  const body = newCharge({ payment_method, ...more });
  const answer = await system.charge(body, { key }).expect(202);
  const record = await system.record(key);
  const { external_payment_id } = body;
  return { id: answer.body.id, external_payment_id, key, body, operation_id: record!.operation_id };
}

/** As if an operation had been begun, and attempted, so long ago. */
export async function age(system: TestSystem, operation_id: string, hours: number): Promise<void> {
  const past = `clock_timestamp() - ${hours} * interval '1 hour'`;
  await system.query(
    `update operation set first_attempt_at = ${past}, last_attempt_at = ${past}, created_at = ${past} where id = $1`,
    [operation_id],
  );
}

export async function operatorEntries(system: TestSystem, payment_id: string): Promise<Record<string, unknown>[]> {
  const { body } = await get(system, `/payments/${payment_id}/timeline`).expect(200);
  const items: { type: string; detail: Record<string, unknown> }[] = body.data;
  return items.filter(({ type }) => type === 'operator').map(({ detail }) => detail);
}

export async function eventTypes(system: TestSystem, payment_id: string): Promise<string[]> {
  const events = await system.query<{ type: string }>(
    'select type from outbox_event where key = $1 order by sequence',
    [payment_id],
  );
  return events.map(({ type }) => type);
}

/** Sends what the simulator told of a charge, properly signed, to an instance that hears it. */
export async function tell(system: TestSystem, hearing: TestInstance, payment_id: string, type: string): Promise<void> {
  const events = await system.simulator.events();
  const event = events.findLast(
    (candidate) => candidate.type === type && candidate.body.data.payment.id === payment_id,
  );
  if (!event) throw new Error(`the simulator has told no ${type} of ${payment_id}`);
  const [body, sent_at] = [JSON.stringify(event.body), new Date()];
  await request(hearing.url)
    .post('/webhooks/sandbox')
    .set('content-type', 'application/json')
    .set('webhook-id', event.id)
    .set('webhook-timestamp', String(Math.floor(sent_at.getTime() / 1000)))
    .set('webhook-signature', new Webhook(system.simulator.webhook_secret).sign(event.id, sent_at, body))
    .send(body)
    .expect(200);
}
