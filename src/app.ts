import { fastify, LogController } from 'fastify';
import type { FastifyBaseLogger, FastifyInstance, FastifyPluginAsync } from 'fastify';
import { newId } from './domain/id.js';
import { KeyDirectory } from './clients/directory.js';
import { findValidKeys, KEYS_CHANNEL, recordLastUse } from './clients/key-store.js';
import { LastUse } from './clients/last-use.js';
import type { Config } from './config.js';
import type { Database } from './database/database.js';
import { Listener } from './database/listener.js';
import { auth } from './http/auth.js';
import { BODY_LIMIT_BYTES, bodyParser } from './http/body-parser.js';
import { draining } from './http/draining.js';
import { idempotency } from './http/idempotency.js';
import { healthRoutes } from './http/health.js';
import { hostHeader } from './http/host-header.js';
import { metricsRoute } from './http/metrics-route.js';
import { openApi } from './http/openapi.js';
import { pages } from './http/pages.js';
import { handleClientError, handleError, handleFrameworkError } from './http/problem-handler.js';
import { clientRateLimit, failureLimit } from './http/rate-limit.js';
import { requestLog } from './http/request-log.js';
import { checkAccessDeclared } from './http/request.js';
import { strictQuery } from './http/strict-query.js';
import { unrouted } from './http/unrouted.js';
import { accountRoutes } from './http/routes/accounts.js';
import { idempotencyKeyRoutes } from './http/routes/idempotency-keys.js';
import { orderRoutes } from './http/routes/orders.js';
import { paymentOperationRoutes } from './http/routes/payment-operations.js';
import { paymentReadRoutes } from './http/routes/payment-reads.js';
import { paymentRoutes } from './http/routes/payments.js';
import { webhookRoutes } from './http/routes/webhooks.js';
import type { Logger } from './logger.js';
import type { Metrics } from './metrics.js';
import type { PaymentsContext } from './payments/context.js';
import { backlogReader } from './store/backlog.js';

export interface AppDependencies {
  readonly config: Config;
  readonly database: Database;
  readonly payments: PaymentsContext;
  readonly metrics: Metrics;
  readonly logger: Logger;
  /** Where several processes serve: the metrics of all of them. Left out: this one's. */
  readonly collectMetrics?: (() => Promise<string>) | undefined;
  readonly hooks?: AppHooks;
}

/** What a test puts in. */
export interface AppHooks {
  /** Registered after all routes, within everything that guards them. */
  readonly routes?: FastifyPluginAsync;
}

/** The app with all its plugins and routes, ready to listen. Closing it ends what it started, not the database. */
export async function buildApp(dependencies: AppDependencies): Promise<FastifyInstance> {
  const { config, database, metrics, payments, hooks } = dependencies;
  const { processes, rate_limit_per_second } = config;
  const app = newServer(dependencies.logger);
  const keys = keysOf(app, database);

  app.setErrorHandler(handleError);
  checkAccessAtStart(app);
  await app.register(requestLog, { metrics });
  await app.register(draining);
  await app.register(hostHeader);
  await app.register(unrouted);
  await app.register(auth, { ...keys, onFailure: await failureLimit(app, { processes }) });
  await app.register(clientRateLimit, { per_second: rate_limit_per_second, processes });
  await app.register(bodyParser);
  await app.register(openApi);

  await app.register(strictQuery);
  await app.register(idempotency, { payments });
  await app.register(paymentRoutes, { payments });
  await app.register(paymentOperationRoutes, { payments });
  await app.register(paymentReadRoutes, { payments, prisma: database.prisma });
  await app.register(idempotencyKeyRoutes, { payments });
  await app.register(webhookRoutes, { payments });
  await app.register(orderRoutes, database);
  await app.register(accountRoutes, database);
  await app.register(healthRoutes, database);
  await app.register(metricsRoute, { metrics, collect: dependencies.collectMetrics });
  await app.register(pages);
  if (hooks?.routes !== undefined) await app.register(hooks.routes);

  watchDatabase(metrics, database);
  await app.ready();
  return app;
}

/** Limits in one place: how long a request may take to arrive, how large its parts may be. */
const REQUEST_TIMEOUT_MS = 30_000;
const HEADERS_TIMEOUT_MS = 15_000;
const TIMEOUT_CHECK_INTERVAL_MS = 5_000;
/** An idempotency key of 255 characters, each percent-encoded, and some. */
const PATH_PART_MAX_LENGTH = 800;

function newServer(logger: FastifyBaseLogger): FastifyInstance {
  const app = fastify({
    loggerInstance: logger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    genReqId: () => newId(),
    bodyLimit: BODY_LIMIT_BYTES,
    trustProxy: false,
    return503OnClosing: false, // http/draining.ts says it as a problem
    requestTimeout: REQUEST_TIMEOUT_MS,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: TIMEOUT_CHECK_INTERVAL_MS,
      requireHostHeader: false, // http/host-header.ts says it as a problem
    },
    routerOptions: { maxParamLength: PATH_PART_MAX_LENGTH },
    rewriteUrl: (request) => (request.url === '*' ? '/*' : (request.url ?? '/')),
    frameworkErrors: handleFrameworkError,
    clientErrorHandler: handleClientError,
  });
  // An expectation that we don't know may be ignored (RFC 9110, 10.1.1); Node would answer 417 without a body.
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response));
  return app;
}

function watchDatabase(metrics: Metrics, { pool }: Database): void {
  metrics.watchPool(() => ({ total: pool.totalCount, idle: pool.idleCount, waiting: pool.waitingCount }));
  metrics.watchBacklog(backlogReader(pool));
}

function checkAccessAtStart(app: FastifyInstance): void {
  const routes: Parameters<typeof checkAccessDeclared>[0][number][] = [];
  app.addHook('onRoute', (route) => void routes.push(route));
  app.addHook('onReady', async () => checkAccessDeclared(routes));
}

/** Who has which key: a directory that changes empty at once, and the times of use, written now and then. */
function keysOf(app: FastifyInstance, { pool, listen_url }: Database): { directory: KeyDirectory; lastUse: LastUse } {
  const directory = new KeyDirectory({ query: (hashes) => findValidKeys(pool, hashes) });
  const warn = (message: string) => (error: unknown) => app.log.warn({ err: error }, message);
  const lastUse = new LastUse((uses) => recordLastUse(pool, uses), warn('last use of API keys was not written'));
  const changes = new Listener({
    connection_string: listen_url,
    application_name: 'oncepay key changes',
    channel: KEYS_CHANNEL,
    onEvent: () => directory.forget(),
    onError: warn('no notifications of changed API keys for now: changes take up to a second'),
  });
  app.addHook('onListen', () => changes.start());
  app.addHook('onClose', async () => {
    await Promise.all([changes.stop(), lastUse.stop()]);
  });
  return { directory, lastUse };
}
