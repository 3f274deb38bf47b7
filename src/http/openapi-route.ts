import type { FastifyContextConfig } from 'fastify';
import type { z } from 'zod';
import type { Scope } from '../clients/scopes.js';
import type { ErrorCode } from '../domain/errors.js';
import './request.js';

/** Answer headers that are described once, in openapi-headers.ts. */
export type AnswerHeader = 'Location' | 'Link' | 'Idempotency-Key-Expires' | 'Idempotent-Replayed';

export interface DocumentedAnswer {
  readonly description: string;
  /** A JSON body, by a schema with an id (src/contract/schemas.ts). */
  readonly schema?: z.ZodType;
  /** Texts that it may be besides. Neither this nor a schema: no body. */
  readonly text_types?: readonly string[];
  readonly headers?: readonly AnswerHeader[];
  /** Whole bodies by name, shown in the Swagger UI; without them the schema's own examples are. */
  readonly examples?: Readonly<Record<string, DocumentedExample>>;
}

export interface DocumentedExample {
  readonly summary: string;
  readonly value: unknown;
}

/** What a route tells about itself. Everything that follows from it (401, 403, 429, 415, …) is added by openapi.ts. */
export interface RouteDocumentation {
  /** One line, without a full stop. */
  readonly summary: string;
  /** Markdown. */
  readonly description?: string;
  /** The name in generated clients: `createCharge`. */
  readonly operation_id: string;
  readonly tag: 'Payments' | 'Refunds' | 'Idempotency' | 'Webhooks' | 'Operations' | 'Orders' | 'Help';
  /** Every `:name` of the path. */
  readonly path_parameters?: Readonly<
    Record<string, { readonly description: string; readonly example: string; readonly format?: 'uuid' }>
  >;
  /** A flat object schema: each member is one parameter. */
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;
  /** False: no body means the same as an empty object. */
  readonly body_required?: boolean;
  readonly body_examples?: Readonly<Record<string, DocumentedExample>>;
  /** Moves money: asks for an `Idempotency-Key`, understands `Prefer: wait`, answers with the key's headers. */
  readonly idempotent?: true;
  /** By status: what is answered when all went well (and 503 of readiness). */
  readonly answers: Readonly<Record<number, DocumentedAnswer>>;
  /** Refusals of this route's own: `not_found`, `invalid_payment_state`, … */
  readonly problems?: readonly ErrorCode[];
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** `hidden`: not for callers (the Swagger UI's own files). Every other route is described. */
    openapi?: RouteDocumentation | 'hidden';
  }
}

/**
 * A route's configuration: who may call it, and what the OpenAPI document says about it.
 *
 *     app.post('/payments', { config: documented({ scope: 'payments:write', summary: …, idempotent: true, … }) }, handler)
 */
export function documented(
  route: RouteDocumentation & ({ readonly scope: Scope } | { readonly public: true }),
): FastifyContextConfig {
  const access = 'scope' in route ? { scope: route.scope } : { public: route.public };
  return { ...access, openapi: route };
}
