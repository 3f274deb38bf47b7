import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type pg from 'pg';
import type { Step } from '../../src/payments/context.js';
import type { Victim } from './process.js';
import { report } from './report.js';
import { type Answered, KINDS, type Kind, type MoneyRequest, movementsOf, prepare, send } from './scenario.js';
import { PARTS, type Statement, statementsWith } from './statements.js';
import { expectHappened, rowsOf } from './truth.js';
import { FaultWorld } from './world.js';

const LONG = { timeout: 30_000, interval: 50 };
const TIMEOUT_MS = 90_000;

let world: FaultWorld;
let one: Victim;
let other: Victim;
let pool: pg.Pool;

beforeAll(async () => {
  world = await FaultWorld.start();
  pool = world.pool();
  one = await world.launch();
  other = await world.launch();
}, TIMEOUT_MS);
afterAll(async () => {
  await pool.end();
  await world.stop();
}, TIMEOUT_MS);

/** Repeats a request with its key until it is answered finally, as a client would. */
async function untilFinal(service: Victim, request: MoneyRequest): Promise<Answered> {
  return vi.waitFor(async () => {
    const answer = await send(service.url, request);
    expect([200, 201], answer.text).toContain(answer.status);
    return answer;
  }, LONG);
}

async function expectOnce(request: MoneyRequest, answer: Answered): Promise<void> {
  expectHappened(request, await rowsOf(pool, request));
  expect(await movementsOf(world.simulator, request), 'movements at the provider').toBe(1);
  const again = await send(other.url, request);
  expect(again.text).toBe(answer.text);
  expect(again.status).toBe(answer.status);
}

/** What a client sees that does not retry: some answer, or none. */
function quietly(answer: Promise<Answered>): Promise<Answered | undefined> {
  return answer.catch(() => undefined);
}

describe('an acknowledgement of the database is lost after the commit', () => {
  const cases: [Statement, Kind][] = [
    ['reserve_insert', 'refund'],
    ['reserve_and_begin_charge', 'charge'],
    ['settle', 'charge'],
    ['COMMIT', 'pay again'],
    ['COMMIT', 'capture'],
    ['COMMIT', 'refund'],
  ];
  it.each(Object.entries(PARTS))('of %s, which is known by a part of its text', (statement, part) => {
    expect(statementsWith(part)).toEqual([statement]);
  });

  it.each(cases)(
    'of %s, %s',
    async (statement, kind) => {
      const request = await prepare(one.url, world.simulator, kind, null);
      const lost = world.loseAnswerOf(statement);
      const first = quietly(send(one.url, request));
      await lost;
      await first;
      await expectOnce(request, await untilFinal(one, request));
      report({
        fault: `acknowledgement of ${statement} lost after its commit (${kind})`,
        held: 'one movement, the answer on retry',
      });
    },
    TIMEOUT_MS,
  );
});

describe('a service is paused past its lease, another takes over, the first goes on', () => {
  const steps: Step[] = ['reserved', 'begun', 'answered'];
  const cases = steps.flatMap((step) => KINDS.map((kind) => [step, kind] as const));
  it.each(cases)(
    'at %s, %s',
    async (step, kind) => {
      const request = await prepare(one.url, world.simulator, kind, null);
      const held = one.holdAt(step);
      const first = quietly(send(one.url, request));
      await held;
      one.pause();
      const answer = await untilFinal(other, request);
      one.resume();
      one.goOn();
      const late = await first;
      // Whatever the first has to say now, it is not another outcome.
      if (late && late.status < 300) expect(late.json.id).toBe(answer.json.id);
      await expectOnce(request, answer);
      report({
        fault: `paused past its lease (SIGSTOP) at step "${step}", taken over, continued (${kind})`,
        held: 'one movement, one answer',
      });
    },
    TIMEOUT_MS,
  );
});

describe('PostgreSQL dies and comes up again', () => {
  const steps: Step[] = ['reserved', 'begun', 'answered'];
  const cases = steps.flatMap((step) => (['charge', 'refund'] as const).map((kind) => [step, kind] as const));
  it.each(cases)(
    'while a request stands at %s, %s',
    async (step, kind) => {
      const request = await prepare(one.url, world.simulator, kind, null);
      const held = one.holdAt(step);
      const first = quietly(send(one.url, request));
      await held;
      await world.killDatabase();
      one.goOn();
      const meanwhile = await first;
      expect(meanwhile?.status ?? 503, meanwhile?.text).toBe(503);
      const during = await send(one.url, { ...request, key: `${request.key}-during` });
      expect(during.status, during.text).toBe(503);
      await world.restartDatabase();
      pool = world.pool();
      await expectOnce(request, await untilFinal(one, request));
      report({
        fault: `PostgreSQL dies and comes up again at step "${step}" (${kind})`,
        held: '503 meanwhile, then one movement and the answer',
      });
    },
    TIMEOUT_MS,
  );
});

describe('PostgreSQL is set back to before the last commits', () => {
  it.each(['charge', 'pay again', 'capture', 'refund'] as const)(
    '%s',
    async (kind) => {
      const request = await prepare(one.url, world.simulator, kind, null);
      await world.keep();
      await untilFinal(one, request);
      expect(await movementsOf(world.simulator, request)).toBe(1);
      await world.setBack();
      await expectOnce(request, await untilFinal(one, request));
      report({
        fault: `PostgreSQL set back to before the commits (${kind})`,
        held: 'the retry finds the movement at the provider: one movement',
      });
    },
    TIMEOUT_MS,
  );
});

describe('PostgreSQL is set back, and the provider is asked before the client retries', () => {
  it(
    'capture',
    async () => {
      const request = await prepare(one.url, world.simulator, 'capture', null);
      await world.keep();
      await untilFinal(one, request);
      await world.setBack();
      await world.query(`update operation set check_at = clock_timestamp() where status = 'authorized'`);
      await vi.waitFor(async () => expect((await rowsOf(pool, request)).payment?.status).toBe('succeeded'), LONG);
      await expectOnce(request, await untilFinal(one, request));
      report({
        fault: 'PostgreSQL set back to before a capture, which reconciliation finds before the retry',
        held: 'the retry finds its movement at the provider: one movement',
      });
    },
    TIMEOUT_MS,
  );
});

describe('the provider misbehaves', () => {
  const faults: Readonly<Record<string, string>> = {
    'commits, then hangs': 'pm_commit_then_hang',
    'commits, then resets the connection': 'pm_commit_then_reset',
    'drops the connection and commits late': 'pm_late_commit',
    'answers 503 once': 'pm_unavailable_once',
    'says once that the key is in use': 'pm_key_in_use_once',
  };
  const cases = Object.entries(faults).flatMap(([fault, behaviour]) =>
    KINDS.map((kind) => [fault, kind, behaviour] as const),
  );
  it.each(cases)(
    'it %s, %s',
    async (fault, kind, behaviour) => {
      const request = await prepare(one.url, world.simulator, kind, behaviour);
      await quietly(send(one.url, request));
      await expectOnce(request, await untilFinal(one, request));
      report({ fault: `the provider ${fault} (${kind})`, held: 'one movement, the true outcome' });
    },
    TIMEOUT_MS,
  );

  it(
    'it is away for a while in the middle of a charge',
    async () => {
      const request = await prepare(one.url, world.simulator, 'charge', 'pm_slow_400');
      const first = quietly(send(one.url, request));
      await vi.waitUntil(async () => (await world.simulator.calls()).at(-1)?.answer === null, LONG);
      await world.simulator.kill();
      expect((await first)?.status).toBe(202);
      expect((await send(one.url, request)).status).toBe(202);
      world.simulator = await world.simulator.restart();
      await expectOnce(request, await untilFinal(one, request));
      report({
        fault: 'the provider is killed during a charge and comes back',
        held: '202 meanwhile, then one movement',
      });
    },
    TIMEOUT_MS,
  );

  it(
    'it was away from the beginning: known not to have happened, and paid again later',
    async () => {
      const request = await prepare(one.url, world.simulator, 'charge', null);
      await world.simulator.kill();
      const refused = await send(one.url, request);
      expect([refused.status, refused.json.status], refused.text).toEqual([201, 'failed']);
      world.simulator = await world.simulator.restart();
      expect(await movementsOf(world.simulator, request)).toBe(0);
      const again: MoneyRequest = { ...request, kind: 'pay again', key: `${request.key}-again` };
      await expectOnce(again, await untilFinal(one, again));
      report({
        fault: 'the provider can’t be reached at all',
        held: 'the charge fails, nothing moved; paying again moves once',
      });
    },
    TIMEOUT_MS,
  );
});
