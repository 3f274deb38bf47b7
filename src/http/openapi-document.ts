import { PROBLEMS } from '../contract/problems.js';
import { Problem } from '../contract/schemas.js';
import { ERROR_CODES, type ErrorCode } from '../domain/errors.js';
import { HEADERS, headersOf, PARAMETERS } from './openapi-headers.js';
import { problemExample, problemsByStatus } from './openapi-problems.js';
import type { DocumentedAnswer, DocumentedExample, RouteDocumentation } from './openapi-route.js';
import { SchemaComponents } from './openapi-schemas.js';
import { API_DESCRIPTION, TAGS } from './openapi-texts.js';

/** A route as it was registered: `path` in Fastify's form (`/payments/:id`). */
export interface DocumentedRoute {
  readonly method: string;
  readonly path: string;
  readonly scope: string | undefined;
  readonly documentation: RouteDocumentation;
}

type Json = Record<string, unknown>;

/** The OpenAPI 3.1 document of these routes, in the order in which they were registered. */
export function openApiDocument(routes: readonly DocumentedRoute[], version: string): Json {
  const schemas = new SchemaComponents();
  const problem = schemas.use(Problem, 'answer');
  const paths: Record<string, Json> = {};
  const used = new Set<ErrorCode>();
  for (const route of routes) {
    const path = route.path.replace(/:(\w+)/g, '{$1}');
    (paths[path] ??= {})[route.method.toLowerCase()] = operation(route, schemas, problem, used);
  }
  const codes = ERROR_CODES.filter((code) => used.has(code));
  return {
    openapi: '3.1.0',
    info: {
      title: 'Oncepay',
      version,
      summary: 'Charge, capture, cancel and refund; never twice, and nothing gets lost.',
      description: API_DESCRIPTION,
      license: { name: 'Apache 2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'This service' }],
    security: [{ ApiKey: [] }],
    tags: TAGS.filter((tag) => routes.some((route) => route.documentation.tag === tag.name)),
    paths,
    components: {
      securitySchemes: {
        ApiKey: {
          type: 'http',
          scheme: 'bearer',
          description:
            'An API key of a client. The roles listed at each operation are the scope that the client needs: `payments:write`, `payments:read`, `commands`, `admin` (reads every client’s resources).',
        },
      },
      parameters: PARAMETERS,
      headers: HEADERS,
      examples: Object.fromEntries(codes.map((code) => [code, problemExample(code)])),
      schemas: schemas.all(),
    },
  };
}

function operation(route: DocumentedRoute, schemas: SchemaComponents, problem: Json, used: Set<ErrorCode>): Json {
  const { documentation, scope } = route;
  const { body, summary, description, operation_id, tag } = documentation;
  return {
    operationId: operation_id,
    summary,
    ...(description === undefined ? {} : { description }),
    tags: [tag],
    security: scope === undefined ? [] : [{ ApiKey: [scope] }],
    parameters: parameters(documentation, schemas),
    ...(body === undefined
      ? {}
      : {
          requestBody: {
            required: documentation.body_required ?? true,
            content: {
              'application/json': {
                schema: schemas.use(body, 'request'),
                ...examples(documentation.body_examples),
              },
            },
          },
        }),
    responses: responses(route, schemas, problem, used),
  };
}

function parameters(
  { path_parameters = {}, query, idempotent }: RouteDocumentation,
  schemas: SchemaComponents,
): Json[] {
  const inPath = Object.entries(path_parameters).map(([name, { description, example, format }]) => ({
    name,
    in: 'path',
    required: true,
    description,
    schema: { type: 'string', ...(format === undefined ? {} : { format }) },
    example,
  }));
  const inQuery = (query === undefined ? [] : schemas.members(query)).map(({ name, schema, required }) => {
    const { description, ...rest } = schema;
    return { name, in: 'query', required, description, schema: rest };
  });
  const inHeader = idempotent === true ? ['IdempotencyKey', 'Prefer'] : [];
  return [...inPath, ...inQuery, ...inHeader.map((name) => ({ $ref: `#/components/parameters/${name}` }))];
}

function responses(
  { documentation, scope }: DocumentedRoute,
  schemas: SchemaComponents,
  problem: Json,
  used: Set<ErrorCode>,
): Json {
  const result: Record<string, Json> = {};
  const limited = scope !== undefined;
  for (const [status, answer] of Object.entries(documentation.answers)) {
    result[status] = {
      description: answer.description,
      headers: headersOf(Number(status), { limited, retry: false, own: answer.headers ?? [] }),
      ...content(answer, schemas),
    };
  }
  for (const [status, codes] of problemsByStatus(documentation, limited)) {
    codes.forEach((code) => used.add(code));
    // Readiness documents its own 503.
    result[String(status)] ??= {
      description: codes.map((code) => `\`${code}\`: ${PROBLEMS[code].title}.`).join('\n\n'),
      headers: headersOf(status, {
        limited,
        retry: codes.some((code) => PROBLEMS[code].retry === 'yes'),
        own: codes.some(ofAStandingKey) ? ['Idempotency-Key-Expires', 'Idempotent-Replayed', 'Link'] : [],
      }),
      content: {
        'application/problem+json': {
          schema: problem,
          examples: Object.fromEntries(codes.map((code) => [code, { $ref: `#/components/examples/${code}` }])),
        },
      },
    };
  }
  return result;
}

/** Refusals that are about a key that is known, or that are stored under it and replayed. */
function ofAStandingKey(code: ErrorCode): boolean {
  return code.startsWith('idempotency_key_') && PROBLEMS[code].status === 409;
}

function content({ schema, text_types = [], examples: own }: DocumentedAnswer, schemas: SchemaComponents): Json {
  const json =
    schema === undefined ? {} : { 'application/json': { schema: schemas.use(schema, 'answer'), ...examples(own) } };
  const texts = Object.fromEntries(text_types.map((type) => [type, { schema: { type: 'string' } }]));
  const all = { ...json, ...texts };
  return Object.keys(all).length === 0 ? {} : { content: all };
}

function examples(own: Readonly<Record<string, DocumentedExample>> | undefined): Json {
  return own === undefined ? {} : { examples: own };
}
