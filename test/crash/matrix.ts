import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type Database, openDatabase } from '../../src/database/database.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { type SimulatorProcess, startSimulatorProcess } from '../support/simulator.js';
import { startVictim, type Victim } from './process.js';
import { report } from './report.js';
import {
  callsOf,
  INSTALLATION_ID,
  KINDS,
  type Kind,
  type MoneyRequest,
  movementsOf,
  prepare,
  send,
} from './scenario.js';
import { type StepName, STEPS } from './steps.js';
import { expectHappened, rowsOf } from './truth.js';

/**
 * kill -9 of the service at each step of each kind of operation; afterwards a retry, or the background job alone, on the
 * restarted service or on another that never stopped. Every cell: one movement at the provider, the truth in the database,
 * the answer for whoever retries, and nothing left unfinished.
 */
type Recovery = 'retry' | 'job';

const LONG = { timeout: 20_000, interval: 50 };
const CELL_TIMEOUT_MS = 60_000;

/** All cells of one way to recover, over one or two instances. A file of its own each, so that they run side by side. */
export function describeMatrix(recovery: Recovery, instances: 1 | 2): void {
  describe(`recovery by ${recovery}, ${instances} ${instances === 1 ? 'instance' : 'instances'}`, () => {
    const world = new World(recovery, instances);
    beforeAll(() => world.start(), CELL_TIMEOUT_MS);
    afterAll(() => world.stop(), CELL_TIMEOUT_MS);
    for (const step of Object.keys(STEPS) as StepName[]) {
      for (const kind of KINDS) {
        it(`${kind}: killed ${step}`, () => cell(world, kind, step), CELL_TIMEOUT_MS);
      }
    }
  });
}

class World {
  simulator!: SimulatorProcess;
  database!: Database;
  private own!: TestDatabase;
  private other: Victim | null = null;
  private running: Victim | null = null;

  constructor(
    readonly recovery: Recovery,
    readonly instances: 1 | 2,
  ) {}

  async start(): Promise<void> {
    this.own = await createTestDatabase();
    this.database = openDatabase(this.own.direct_url, { pool_size: 2, onError: () => undefined });
    this.simulator = await startSimulatorProcess();
    if (this.instances === 2) this.other = await this.launch();
  }

  async stop(): Promise<void> {
    await Promise.all([this.running?.kill(), this.other?.stop()]);
    await this.simulator.stop();
    await this.database.close();
    await this.own.drop();
  }

  /** The service that is going to be killed. */
  async victim(): Promise<Victim> {
    return (this.running ??= await this.launch());
  }

  /** Who is there after the kill: another instance that never stopped, or the service started anew. */
  async survivor(): Promise<Victim> {
    this.running = null;
    if (this.other) return this.other;
    return (this.running = await this.launch());
  }

  private launch(): Promise<Victim> {
    return startVictim(this.own, {
      INSTALLATION_ID,
      SANDBOX_URL: this.simulator.url,
      SANDBOX_WEBHOOK_SECRETS: this.simulator.webhook_secret,
      LEASE_MS: '1500',
      PROVIDER_TIMEOUT_MS: '1200',
      RECONCILE_INTERVAL_MS: '100',
      // By retry alone: the job sleeps through the whole cell.
      RECOVERY_INTERVAL_MS: this.recovery === 'job' ? '100' : '3600000',
    });
  }
}

async function cell(world: World, kind: Kind, step: StepName): Promise<void> {
  const { simulator, database } = world;
  const point = STEPS[step];
  const isAtProvider = point.startsWith('pm_');
  const victim = await world.victim();
  const request = await prepare(victim.url, simulator, kind, isAtProvider ? point : null);
  if (!isAtProvider) victim.dieAt(point as 'reserved');
  const lost = send(victim.url, request).then(
    (answer) => Promise.reject(new Error(`It was answered: ${answer.text}`)),
    () => undefined,
  );
  if (isAtProvider) {
    const arrived = point === 'pm_slow_700' ? callsOf : movementsOf;
    await vi.waitUntil(async () => (await arrived(simulator, request)) > 0, { timeout: 10_000, interval: 5 });
    await victim.kill();
  }
  await lost;
  await victim.ended;

  const survivor = await world.survivor();
  if (world.recovery === 'job' && point === 'reserved' && kind !== 'charge') await keyIsFreed(world, request);
  else {
    if (world.recovery === 'job') await recoveredAlone(world, request);
    await answeredOnRetry(survivor, request);
    expectHappened(request, await rowsOf(database.pool, request));
    expect(await movementsOf(simulator, request), 'movements at the provider').toBe(1);
  }
  report({ kind, step, recovery: world.recovery, instances: world.instances });
}

/**
 * A client that gave up must not be charged later: nothing moved, nothing is there, and the key may be used again. A charge
 * of a new payment is begun together with its reservation, and is finished.
 */
async function keyIsFreed({ simulator, database }: World, request: MoneyRequest): Promise<void> {
  await vi.waitUntil(async () => (await rowsOf(database.pool, request)).record === undefined, LONG);
  expect(await callsOf(simulator, request), 'calls at the provider').toBe(0);
  expect(await movementsOf(simulator, request), 'movements at the provider').toBe(0);
}

async function recoveredAlone({ database }: World, request: MoneyRequest): Promise<void> {
  await vi.waitFor(async () => {
    expectHappened(request, await rowsOf(database.pool, request));
  }, LONG);
}

async function answeredOnRetry(survivor: Victim, request: MoneyRequest): Promise<void> {
  const first = await vi.waitFor(async () => {
    const answer = await send(survivor.url, request);
    expect([200, 201], answer.text).toContain(answer.status);
    return answer;
  }, LONG);
  const again = await send(survivor.url, request);
  expect(again.text).toBe(first.text);
  expect(again.status).toBe(first.status);
  expect(again.headers.get('idempotent-replayed')).toBe('true');
}
