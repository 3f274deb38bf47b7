import type { FastifyInstance } from 'fastify';
import type { Pool } from 'pg';
import { pendingMigrations } from '../database/migrate.js';

export interface HealthOptions {
  readonly pool: Pool;
}

/** How long readiness waits for the database before it says that it is away. */
const DATABASE_ANSWER_MS = 2000;

type Check = 'ok' | 'unreachable' | 'pending' | 'draining';

/** `/health/live`: the process answers. `/health/ready`: it can serve, by database, migrations and draining. */
export async function healthRoutes(app: FastifyInstance, { pool }: HealthOptions): Promise<void> {
  const config = { public: true, quiet: true } as const;
  // Migrations never become unapplied, so one look that finds none pending is enough.
  let migrated = false;

  app.get('/health/live', { config }, async () => ({ status: 'ok' }));

  app.get('/health/ready', { config }, async (request, reply) => {
    const checks: Record<string, Check> = { database: 'ok', migrations: 'ok', shutdown: 'ok' };
    if (app.isDraining()) checks.shutdown = 'draining';
    try {
      await withinLimit(pool.query('select 1'));
      migrated ||= (await withinLimit(pendingMigrations(pool))).length === 0;
      if (!migrated) checks.migrations = 'pending';
    } catch (error) {
      request.log.warn({ err: error }, 'not ready: the database does not answer');
      checks.database = 'unreachable';
    }
    const ready = Object.values(checks).every((check) => check === 'ok');
    return reply.code(ready ? 200 : 503).send({ status: ready ? 'ok' : 'unavailable', checks });
  });
}

async function withinLimit<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${DATABASE_ANSWER_MS} ms`)), DATABASE_ANSWER_MS);
  });
  try {
    return await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}
