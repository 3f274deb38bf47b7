import { readFileSync } from 'node:fs';
import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance, RouteOptions } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { openApiDocument, type DocumentedRoute } from './openapi-document.js';
import './openapi-route.js';

/** Same place from src/http and from dist/http. */
const PACKAGE_FILE = new URL('../../package.json', import.meta.url);

/**
 * Collects every route for the OpenAPI document, `app.swagger()` once the app is ready. Registered before the routes: one
 * that does not describe itself does not start.
 */
export const openApi = fastifyPlugin(async function openApi(app: FastifyInstance) {
  const routes: RouteOptions[] = [];
  // Filled when all routes are known; the plugin hands out this very object.
  const document: Record<string, unknown> = {};
  app.addHook('onRoute', (route) => void routes.push(route));
  app.addHook('onReady', async () => {
    Object.assign(document, openApiDocument(documentedRoutes(routes), packageVersion()));
  });
  await app.register(swagger, { mode: 'static', specification: { document: document as never } });
});

/** The Swagger UI at /docs, with the document at /docs/json. Its files come from this service only. */
export async function swaggerPages(scope: FastifyInstance): Promise<void> {
  scope.addHook('onRoute', (route) => {
    route.config = { ...route.config, public: true, page: true, openapi: 'hidden' };
  });
  await scope.register(swaggerUi, {
    routePrefix: '/docs',
    theme: { title: 'Oncepay API' },
    uiConfig: {
      // Without the bar at the top: it leads to other documents, and its logo needs an inline style.
      layout: 'BaseLayout',
      deepLinking: true,
      defaultModelsExpandDepth: 0,
      displayRequestDuration: true,
      persistAuthorization: false,
      tryItOutEnabled: true,
    },
  });
}

function documentedRoutes(routes: readonly RouteOptions[]): DocumentedRoute[] {
  return routes.flatMap(({ method, url, config }) => {
    const methods = [method].flat().filter((name) => name !== 'HEAD');
    const documentation = config?.openapi;
    if (documentation === 'hidden' || methods.length === 0) return [];
    if (documentation === undefined) throw new Error(`${methods.join(', ')} ${url} has no config.openapi`);
    return methods.map((name) => ({ method: name, path: url, scope: config?.scope, documentation }));
  });
}

function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(PACKAGE_FILE, 'utf8')) as { version: string };
  return version;
}
