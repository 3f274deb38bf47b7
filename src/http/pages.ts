import helmet from '@fastify/helmet';
import type { FastifyInstance } from 'fastify';
import { swaggerPages } from './openapi.js';
import { problemPages, PROBLEM_PAGE_STYLE_HASH } from './problem-pages.js';
import { pageHeaders } from './security-headers.js';

/** What people look at in a browser: the Swagger UI and the problem pages, with headers that fit pages. */
export async function pages(scope: FastifyInstance): Promise<void> {
  await scope.register(helmet, pageHeaders([PROBLEM_PAGE_STYLE_HASH]));
  await scope.register(swaggerPages);
  await scope.register(problemPages);
}
