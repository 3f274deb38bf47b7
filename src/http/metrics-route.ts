import type { FastifyInstance } from 'fastify';
import type { Metrics } from '../metrics.js';

/** `/metrics`, in Prometheus' text format. Scrapes at the same time share one collection. */
export async function metricsRoute(app: FastifyInstance, { metrics }: { metrics: Metrics }): Promise<void> {
  let collecting: Promise<string> | null = null;
  app.get('/metrics', { config: { public: true, quiet: true } }, async (_request, reply) => {
    collecting ??= metrics.registry.metrics().finally(() => (collecting = null));
    return reply.header('content-type', metrics.registry.contentType).send(await collecting);
  });
}
