import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { expect, vi } from 'vitest';
import { type PgBouncer, startPgBouncer } from '../../scripts/pgbouncer/pgbouncer.js';
import { openPool } from '../../src/database/database.js';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/database/embedded/server.js';
import { isRunning } from '../../src/database/processes.js';
import { readPostmaster } from '../../src/database/embedded/postmaster.js';
import { addressOf, type DatabaseAddress, runsPooler, transactionsThrough } from '../support/database.js';
import { type SimulatorProcess, startSimulatorProcess } from '../support/simulator.js';
import { startVictim, type Victim } from './process.js';
import { DatabaseProxy } from './proxy.js';
import { INSTALLATION_ID } from './scenario.js';
import { partOf, type Statement } from './statements.js';

/** Fewer than the connections of two services, so that they share. */
const SESSIONS = 8;

/**
 * A database server that can be killed and set back, a simulator that can be killed, and services over both. Where the run
 * has a pooler, the services have one of their own here, before the proxy: what breaks, breaks behind it, and it has to
 * notice.
 */
export class FaultWorld {
  private constructor(
    private readonly data_dir: string,
    private postgres: EmbeddedPostgres,
    private readonly proxy: DatabaseProxy,
    private readonly bouncer: PgBouncer | null,
    public simulator: SimulatorProcess,
    readonly services: Victim[],
  ) {}

  static async start(): Promise<FaultWorld> {
    const data_dir = mkdtempSync(join(tmpdir(), 'oncepay-faults-'));
    chmodSync(data_dir, 0o711);
    // Durable, as in production: what is acknowledged here must survive kill -9 of the server.
    const postgres = await startEmbeddedPostgres({ data_dir, settings: { shared_buffers: '64MB' } });
    const proxy = await DatabaseProxy.start(postgres.url);
    const bouncer = runsPooler() && (await startPooler(proxy.url));
    return new FaultWorld(data_dir, postgres, proxy, bouncer, await startSimulatorProcess(), []);
  }

  async launch(env: Readonly<Record<string, string>> = {}): Promise<Victim> {
    const service = await startVictim(this.address(), {
      INSTALLATION_ID,
      SANDBOX_URL: this.simulator.url,
      SANDBOX_WEBHOOK_SECRETS: this.simulator.webhook_secret,
      LEASE_MS: '2000',
      PROVIDER_TIMEOUT_MS: '1000',
      RECONCILE_INTERVAL_MS: '100',
      RECOVERY_INTERVAL_MS: '100',
      ...env,
    });
    this.services.push(service);
    return service;
  }

  private address(): DatabaseAddress {
    const through = runsPooler();
    return addressOf(this.proxy.url, this.bouncer && through && { ...through, port: this.bouncer.port });
  }

  /** The statement's next run is committed, and its answer is lost on the way. Resolves when that has happened. */
  loseAnswerOf(statement: Statement): Promise<void> {
    return this.proxy.loseAnswerOf(partOf(statement, this.bouncer === null));
  }

  /** A look at the rows past the services and the proxy. */
  async query<Row extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<Row[]> {
    const client = new pg.Client({ connectionString: this.postgres.url });
    await client.connect();
    try {
      return (await client.query<Row>(text, values)).rows;
    } finally {
      await client.end();
    }
  }

  pool(): pg.Pool {
    return openPool(this.postgres.url, { pool_size: 2 });
  }

  /** SIGQUIT: the server and all its processes end at once, in the middle of what they do, as in a crash. */
  async killDatabase(): Promise<void> {
    const running = readPostmaster(this.postgres.directory);
    if (!running) throw new Error('the database does not run');
    process.kill(running.pid, 'SIGQUIT');
    await vi.waitUntil(() => !isRunning(running.pid), { timeout: 20_000, interval: 10 });
  }

  async restartDatabase(): Promise<void> {
    this.postgres = await startEmbeddedPostgres({ data_dir: this.data_dir, settings: { shared_buffers: '64MB' } });
    this.proxy.pointTo(this.postgres.url);
  }

  /** Keeps the database as it is now, to be set back to. */
  async keep(): Promise<void> {
    await this.asAdmin(['drop database if exists kept', cutOff('oncepay'), 'create database kept template oncepay']);
  }

  /** Sets the database back to where it was kept, under running services: as a fail-over to a stale replica does. */
  async setBack(): Promise<void> {
    await this.asAdmin(['drop database oncepay with (force)', 'create database oncepay template kept']);
  }

  private async asAdmin(statements: readonly string[]): Promise<void> {
    const client = new pg.Client({ connectionString: this.postgres.url.replace(/[^/]*$/, 'postgres') });
    await client.connect();
    try {
      for (const statement of statements) await client.query(statement);
    } finally {
      await client.end();
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.services.map((service) => service.kill()));
    await this.simulator.stop();
    try {
      if (this.bouncer) expect(await transactionsThrough(this.address().url)).toBeGreaterThan(0);
    } finally {
      await this.bouncer?.stop();
      await this.proxy.stop();
      await this.postgres.stop();
      rmSync(this.data_dir, { recursive: true, force: true });
    }
  }
}

function startPooler(server_url: string): Promise<PgBouncer> {
  // As docs/pgbouncer.md has it: by default a server that is back is not tried for 15 s.
  const ini = { server_login_retry: '1', server_round_robin: '1' };
  return startPgBouncer({ server_url, pool_size: SESSIONS, ini });
}

/** Nobody may be connected to a database that is copied. */
function cutOff(database: string): string {
  return `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${database}' and pid <> pg_backend_pid()`;
}
