import { randomUUID } from 'node:crypto';
import { PassThrough } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import request from 'supertest';
import { expect } from 'vitest';
import { buildApp } from '../../src/app.js';
import { createClient } from '../../src/clients/changes.js';
import { SCOPES, type Scope } from '../../src/clients/scopes.js';
import { parseConfig } from '../../src/config.js';
import type { Database } from '../../src/database/database.js';
import { inTransaction } from '../../src/database/transaction.js';
import { chargeProviderKey } from '../../src/domain/command-hash.js';
import { type Jobs, startJobs } from '../../src/jobs/index.js';
import { createLogger } from '../../src/logger.js';
import { createMetrics, type Metrics } from '../../src/metrics.js';
import { createPayments, type PaymentsContext, type Step } from '../../src/payments/context.js';
import type { PaymentProvider } from '../../src/providers/provider.js';
import { createProviders, type Providers } from '../../src/providers/registry.js';
import type { Movement } from '../../src/simulator/records.js';
import { createTestDatabase, type DatabaseAddress, type TestDatabase } from './database.js';
import { freePort } from '../../scripts/free-port.js';
import { type SimulatorProcess, startSimulatorProcess } from './simulator.js';
import { soon } from './soon.js';

export const INSTALLATION_ID = 'test-installation';
const KEY_TRIES_LOOKED_AT = 8;

/** Long enough for a busy machine. Where a lease has to be over, `expireLease` says so instead of waiting for it. */
const ENVIRONMENT: NodeJS.ProcessEnv = {
  LEASE_MS: '12000',
  PROVIDER_TIMEOUT_MS: '5000',
  RECOVERY_INTERVAL_MS: '50',
  RECONCILE_INTERVAL_MS: '50',
  RATE_LIMIT_PER_SECOND: '0',
};

export interface InstanceOptions {
  readonly env?: NodeJS.ProcessEnv;
  /** Puts something between the use cases and the provider's adapter. */
  readonly wrapProvider?: (provider: PaymentProvider) => PaymentProvider;
  /** Calls that may wait for a statement, each kind by itself. */
  readonly max_queue?: number;
}

/** One instance of the service within the test's process, listening. */
export interface TestInstance {
  readonly app: FastifyInstance;
  readonly url: string;
  readonly database: Database;
  readonly payments: PaymentsContext;
  readonly metrics: Metrics;
  /** Every line that was logged, parsed. */
  readonly log: readonly Record<string, unknown>[];
  /** Recovery, reconciliation and retention, until `close` or its own `stop`. */
  startJobs(): Jobs;
  /** Holds the next request that gets to a step, as if its process had paused there. Held ones go on at `close`. */
  holdAt(step: Step): HeldRequest;
  close(): Promise<void>;
}

export interface HeldRequest {
  /** Resolves with the operation's id when a request stands there. */
  readonly reached: Promise<string>;
  release(): void;
}

export interface SystemOptions extends InstanceOptions {
  /** The simulator sends its webhooks to the first instance. */
  readonly webhooks?: boolean;
  /** Of a migrated database, instead of one of the test's own. */
  readonly address?: DatabaseAddress;
}

export interface ChargeOptions {
  readonly key?: string;
  readonly api_key?: string;
  readonly instance?: TestInstance;
  /** Seconds of `Prefer: wait`. */
  readonly wait_s?: number;
}

type Json = Readonly<Record<string, unknown>>;

/** A database, a simulator as its own process, and one instance; more can join. */
export class TestSystem {
  private readonly instances: TestInstance[] = [];

  private constructor(
    private running: SimulatorProcess,
    private readonly own_database: TestDatabase | null,
    /** How an instance reaches the database. */
    readonly address: DatabaseAddress,
    /** The test's own connections. */
    readonly database: Database,
    readonly api_key: string,
    private readonly options: SystemOptions,
    private readonly first_port: number,
  ) {}

  static async start(options: SystemOptions = {}): Promise<TestSystem> {
    const first_port = await freePort();
    const webhook_url = `http://127.0.0.1:${first_port}/webhooks/sandbox`;
    const own = options.address === undefined ? await createTestDatabase() : null;
    const simulator = await startSimulatorProcess(options.webhooks === true ? { webhook_url } : {});
    const address = options.address ?? own!;
    const database = address.open({ pool_size: 4, onError: () => undefined });
    const { key } = await createClient(
      database.pool,
      { id: 'default', name: 'default', scopes: SCOPES },
      { actor: 'test' },
    );
    const system = new TestSystem(simulator, own, address, database, key, options, first_port);
    await system.join();
    return system;
  }

  get simulator(): SimulatorProcess {
    return this.running;
  }

  /** After it was killed: again at its address, with what it kept. */
  async restartSimulator(): Promise<void> {
    this.running = await this.running.restart();
  }

  get first(): TestInstance {
    return this.instances[0]!;
  }

  /** One more instance over the same database and provider. */
  async join(options: InstanceOptions = {}): Promise<TestInstance> {
    const env = { ...this.options.env, ...options.env };
    const port = this.instances.length === 0 ? this.first_port : 0;
    const instance = await startInstance(this, port, { ...this.options, ...options, env });
    this.instances.push(instance);
    return instance;
  }

  /** Makes a client. @returns its API key */
  async client(id: string, scopes: readonly Scope[] = SCOPES): Promise<string> {
    return (await createClient(this.database.pool, { id, name: id, scopes }, { actor: 'test' })).key;
  }

  charge(body: Json, options: ChargeOptions = {}): request.Test {
    const { key = randomUUID(), api_key = this.api_key, instance = this.first, wait_s } = options;
    const sent = request(instance.url)
      .post('/payments')
      .set('authorization', `Bearer ${api_key}`)
      .set('idempotency-key', key);
    if (wait_s !== undefined) void sent.set('prefer', `wait=${wait_s}`);
    return sent.send(body);
  }

  getPayment(id: string, options: { readonly api_key?: string; readonly instance?: TestInstance } = {}): request.Test {
    const { api_key = this.api_key, instance = this.first } = options;
    return request(instance.url).get(`/payments/${id}`).set('authorization', `Bearer ${api_key}`);
  }

  /** Repeats a charge with its key until it is answered finally (not 202, not 409 in progress). */
  async chargeUntilFinal(body: Json, options: ChargeOptions & { readonly key: string }): Promise<request.Response> {
    return soon(
      async () => {
        const answer = await this.charge(body, options);
        expect([202, 409, 503]).not.toContain(answer.status);
        return answer;
      },
      { interval: 50 },
    );
  }

  async query<Row extends object = Record<string, unknown>>(text: string, values: unknown[] = []): Promise<Row[]> {
    return (await this.database.pool.query<Row>(text, values)).rows;
  }

  /** How the rows of a name stand. */
  async rowsOf(external_payment_id: string) {
    const payments = await this.query<{ id: string; status: string; version: number; client_id: string }>(
      'select id, status, version, client_id from payment where external_payment_id = $1',
      [external_payment_id],
    );
    const ids = payments.map((payment) => payment.id);
    const operations = await this.query<{
      id: string;
      kind: string;
      status: string;
      try_number: number;
      attempts_started: number;
      attempts_finished: number;
      needs_review_at: Date | null;
      closed_at: Date | null;
    }>(
      `select id, kind, status, try_number, attempts_started, attempts_finished, needs_review_at, closed_at
       from operation where payment_id = any($1::uuid[]) order by try_number, created_at`,
      [ids],
    );
    const anomalies = await this.query<{ kind: string }>(
      'select kind from anomaly where payment_id = any($1::uuid[]) order by created_at',
      [ids],
    );
    const events = await this.query<{ type: string; sequence: number }>(
      'select type, sequence from outbox_event where key = any($1::text[]) order by sequence',
      [ids],
    );
    return { payments, operations, anomalies, events };
  }

  async record(
    key: string,
    client_id = 'default',
  ): Promise<
    | {
        state: string;
        http_status: number | null;
        body: string | null;
        lease_token: string | null;
        operation_id: string;
        attempts_started: number;
        expires_at: Date | null;
      }
    | undefined
  > {
    const rows = await this.query<NonNullable<Awaited<ReturnType<TestSystem['record']>>>>(
      `select state, http_status, body, lease_token, operation_id, attempts_started, expires_at
       from idempotency_record where client_id = $1 and key = $2`,
      [client_id, key],
    );
    return rows[0];
  }

  /** As if the lease's time had passed. Its holder does not notice. */
  async expireLease(key: string): Promise<void> {
    await this.expireLeases(`key = $1`, [key]);
  }

  /** As if the time of these leases had passed, for whoever looks: the record itself, and the operation that watches it. */
  async expireLeases(which: string, values: readonly unknown[] = []): Promise<void> {
    const chosen = await this.query<{ client_id: string; key: string; operation_id: string }>(
      `select client_id, key, operation_id from idempotency_record where state = 'in_progress' and ${which}`,
      [...values],
    );
    // Operations before records, each in order: as everybody locks them.
    await this.query(
      `with o as (select id from operation where id = any($1) and check_at is not null and status = 'processing'
                  order by id for no key update skip locked)
       update operation set check_at = clock_timestamp() - interval '1 second' from o where operation.id = o.id`,
      [chosen.map((record) => record.operation_id)],
    );
    await this.query(
      `with c as (select client_id, key from idempotency_record where key = any($1) and state = 'in_progress'
                  order by client_id, key for no key update skip locked)
       update idempotency_record r
       set lease_until = clock_timestamp() - interval '1 second', recover_at = clock_timestamp() - interval '1 second'
       from c where c.client_id = r.client_id and c.key = r.key`,
      [chosen.map((record) => record.key)],
    );
  }

  /** Undoes rows as a dump restored from before them does: past the triggers that let nobody delete payments. */
  async forget(statements: readonly string[], values: readonly unknown[]): Promise<void> {
    await inTransaction(this.first.database.pool, async (tx) => {
      await tx.query('set local session_replication_role = replica');
      for (const statement of statements) await tx.query(statement, [...values]);
    });
  }

  /** As if the retention's time had passed. */
  async expireRecord(key: string): Promise<void> {
    await this.query(
      `update idempotency_record set expires_at = clock_timestamp() - interval '1 second' where key = $1 and state = 'done'`,
      [key],
    );
  }

  /** What really moved at the provider under a payment's name, whatever our database says of it. */
  async movements(external_payment_id: string, client_id = 'default'): Promise<Movement[]> {
    const references = referencesOf(external_payment_id, client_id);
    return (await this.simulator.movements()).filter(({ reference }) => references.has(reference ?? ''));
  }

  /** What the provider was asked for under a payment's name. */
  async calls(external_payment_id: string, client_id = 'default'): Promise<{ operation: string; answer: unknown }[]> {
    const references = referencesOf(external_payment_id, client_id);
    return (await this.simulator.calls()).filter(({ reference }) => references.has(reference ?? ''));
  }

  /** Ends everything; `check` is what a last look has to find, also where it finds something else. */
  async close(check?: (system: TestSystem) => Promise<void>): Promise<void> {
    try {
      await check?.(this);
    } finally {
      for (const instance of [...this.instances].reverse()) await instance.close();
      await this.database.close();
      await this.simulator.stop();
      await this.own_database?.drop();
    }
  }
}

/** The provider keys that the tries of a charge have: they depend on nothing that our database holds. */
export function referencesOf(external_payment_id: string, client_id = 'default'): Set<string> {
  const parts = { installation_id: INSTALLATION_ID, client_id, provider: 'sandbox', external_payment_id };
  return new Set(
    Array.from({ length: KEY_TRIES_LOOKED_AT }, (_, n) => chargeProviderKey({ ...parts, try_number: n + 1 })),
  );
}

/** The body of a charge that nobody has asked for before. */
export function newCharge(more: Json = {}): Json & { readonly external_payment_id: string } {
  return {
    amount: '10.00',
    currency: 'EUR',
    customer_id: 'customer-1',
    external_payment_id: `order-${randomUUID()}`,
    ...more,
  };
}

async function startInstance(
  system: Pick<TestSystem, 'simulator' | 'address'>,
  port: number,
  options: InstanceOptions,
): Promise<TestInstance> {
  const { simulator } = system;
  const config = parseConfig({
    ...ENVIRONMENT,
    SANDBOX_URL: simulator.url,
    SANDBOX_WEBHOOK_SECRETS: simulator.webhook_secret,
    ...options.env,
  });
  const database = system.address.open({ pool_size: 8, onError: () => undefined });
  const log: Record<string, unknown>[] = [];
  const logger = createLogger('debug', collect(log));
  const metrics = createMetrics();
  const gates = new Gates();
  const made = await createProviders(config, {
    sandbox_url: simulator.url,
    sandbox_webhook_secrets: [simulator.webhook_secret],
  });
  const payments = createPayments({
    pool: database.pool,
    providers: options.wrapProvider ? wrapAll(made, options.wrapProvider) : made,
    installation_id: INSTALLATION_ID,
    timing: config.timing,
    retention_ms: config.retention.idempotency_h * 60 * 60_000,
    auto_refund_anomalies: config.auto_refund_anomalies,
    metrics,
    logger,
    atStep: (step, operation_id) => gates.pass(step, operation_id),
    ...(options.max_queue !== undefined && { max_queue: options.max_queue }),
  });
  const app = await buildApp({ config, database, payments, metrics, logger });
  const url = await app.listen({ host: '127.0.0.1', port });
  const running = new Set<Jobs>();
  let closing: Promise<void> | undefined;
  return {
    app,
    url,
    database,
    payments,
    metrics,
    log,
    startJobs() {
      const jobs = startJobs({ config, payments, logger });
      running.add(jobs);
      return jobs;
    },
    holdAt: (step) => gates.hold(step),
    close() {
      closing ??= (async () => {
        gates.open();
        await Promise.all([...running].map((jobs) => jobs.stop()));
        await app.close();
        await database.close();
      })();
      return closing;
    },
  };
}

/** Where requests can be made to stand still. */
class Gates {
  private readonly waiting: { step: Step; arrive: (operation_id: string) => Promise<void>; release: () => void }[] = [];
  private readonly held = new Set<() => void>();

  hold(step: Step): HeldRequest {
    let arrived: (operation_id: string) => void = () => undefined;
    let release: () => void = () => undefined;
    const reached = new Promise<string>((resolve) => (arrived = resolve));
    const released = new Promise<void>((resolve) => (release = resolve));
    this.held.add(release);
    this.waiting.push({
      step,
      release,
      arrive: (operation_id) => {
        arrived(operation_id);
        return released;
      },
    });
    return { reached, release };
  }

  pass(step: Step, operation_id: string): Promise<void> | undefined {
    const index = this.waiting.findIndex((gate) => gate.step === step);
    return index < 0 ? undefined : this.waiting.splice(index, 1)[0]!.arrive(operation_id);
  }

  open(): void {
    this.waiting.length = 0;
    for (const release of this.held) release();
  }
}

function wrapAll(providers: Providers, wrap: (provider: PaymentProvider) => PaymentProvider): Providers {
  const wrapped = new Map(providers.names.map((name) => [name, wrap(providers.get(name)!)]));
  return { ...providers, get: (name) => wrapped.get(name) };
}

function collect(lines: Record<string, unknown>[]): PassThrough {
  const stream = new PassThrough();
  stream.on('data', (chunk: Buffer) => {
    for (const line of chunk.toString().split('\n').filter(Boolean)) {
      lines.push(JSON.parse(line) as Record<string, unknown>);
    }
  });
  return stream;
}
