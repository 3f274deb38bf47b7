import type { FastifyInstance } from 'fastify';
import type { Metrics } from '../metrics.js';
import { documented } from './openapi-route.js';

export interface MetricsRouteOptions {
  readonly metrics: Metrics;
  /** Instead of this process's own. */
  readonly collect?: (() => Promise<string>) | undefined;
}

/** `/metrics`, in Prometheus' text format. Scrapes at the same time share one collection. */
export async function metricsRoute(app: FastifyInstance, options: MetricsRouteOptions): Promise<void> {
  const { registry } = options.metrics;
  const collect = options.collect ?? (() => registry.metrics());
  let collecting: Promise<string> | null = null;
  const config = {
    quiet: true,
    ...documented({
      public: true,
      summary: 'Metrics for Prometheus',
      operation_id: 'getMetrics',
      tag: 'Operations',
      answers: { 200: { description: 'In Prometheus’ text format.', text_types: ['text/plain'] } },
    }),
  } as const;
  app.get('/metrics', { config }, async (_request, reply) => {
    collecting ??= collect().finally(() => (collecting = null));
    return reply.header('content-type', registry.contentType).send(await collecting);
  });
}
