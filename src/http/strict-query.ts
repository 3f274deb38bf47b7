import type { FastifyInstance } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { refuseQuery } from '../contract/query.js';

/** Query parameters that an authenticated route does not know are 400: one that is silently ignored misleads. */
export const strictQuery = fastifyPlugin(async function strictQuery(app: FastifyInstance) {
  app.addHook('preValidation', async (request) => {
    const { scope, openapi } = request.routeOptions.config;
    if (scope === undefined || openapi === undefined || openapi === 'hidden' || openapi.query !== undefined) return;
    refuseQuery(request.query);
  });
});
