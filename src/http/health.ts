import type { FastifyInstance } from 'fastify';
import type { Pool } from 'pg';
import { z } from 'zod';
import { pendingMigrations } from '../database/migrate.js';
import { documented } from './openapi-route.js';

export interface HealthOptions {
  readonly pool: Pool;
}

/** How long readiness waits for the database before it says that it is away. */
const DATABASE_ANSWER_MS = 2000;

const Health = z.strictObject({ status: z.enum(['ok']) }).meta({ id: 'Health', description: 'The process answers.' });
const Readiness = z
  .strictObject({
    status: z.enum(['ok', 'unavailable']),
    checks: z.strictObject({
      database: z.enum(['ok', 'unreachable']),
      migrations: z.enum(['ok', 'pending', 'unknown']),
      shutdown: z.enum(['ok', 'draining']),
    }),
  })
  .meta({ id: 'Readiness', description: 'Whether the service can serve, and what is in the way.' });
type Checks = z.infer<typeof Readiness>['checks'];

/** `/health/live`: the process answers. `/health/ready`: it can serve, by database, migrations and draining. */
export async function healthRoutes(app: FastifyInstance, { pool }: HealthOptions): Promise<void> {
  const askDatabase = databaseCheck(pool);

  app.get('/health/live', { config: LIVE }, async (): Promise<z.infer<typeof Health>> => ({ status: 'ok' }));

  app.get('/health/ready', { config: READY }, async (request, reply) => {
    const { error, ...database } = await askDatabase();
    if (error !== null) request.log.warn({ err: error }, 'not ready: the database does not answer');
    const checks: Checks = { ...database, shutdown: app.isDraining() ? 'draining' : 'ok' };
    const ready = Object.values(checks).every((check) => check === 'ok');
    return reply.code(ready ? 200 : 503).send({ status: ready ? 'ok' : 'unavailable', checks });
  });
}

type DatabaseCheck = Omit<Checks, 'shutdown'> & { readonly error: unknown };

/** Everybody may ask for readiness: those who ask at once share one look, so that it takes one connection at most. */
function databaseCheck(pool: Pool): () => Promise<DatabaseCheck> {
  // Migrations never become unapplied, so one look that finds none pending is enough.
  let migrated = false;
  let looking: Promise<DatabaseCheck> | null = null;
  const look = async (): Promise<DatabaseCheck> => {
    try {
      await withinLimit(pool.query('select 1'));
      migrated ||= (await withinLimit(pendingMigrations(pool))).length === 0;
      return { database: 'ok', migrations: migrated ? 'ok' : 'pending', error: null };
    } catch (error) {
      return { database: 'unreachable', migrations: migrated ? 'ok' : 'unknown', error };
    }
  };
  return () => (looking ??= look().finally(() => (looking = null)));
}

const LIVE = {
  quiet: true,
  ...documented({
    public: true,
    summary: 'Whether the process answers',
    operation_id: 'getLiveness',
    tag: 'Operations',
    answers: { 200: { description: 'It does.', schema: Health } },
  }),
} as const;

const READY = {
  quiet: true,
  ...documented({
    public: true,
    summary: 'Whether the service can serve',
    description: 'Ready when the database answers, its migrations are applied and the service is not shutting down.',
    operation_id: 'getReadiness',
    tag: 'Operations',
    answers: {
      200: { description: 'It can.', schema: Readiness },
      503: { description: 'Not now.', schema: Readiness },
    },
  }),
} as const;

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
