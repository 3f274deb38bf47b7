import type { FastifyInstance } from 'fastify';
import { resourcePath } from '../../contract/answer.js';
import { KeyStatus } from '../../contract/schemas.js';
import { OncepayError } from '../../domain/errors.js';
import type { PaymentsContext } from '../../payments/context.js';
import { type KeyRow, readKey } from '../../store/queries.js';
import { unquoted } from '../idempotency-key.js';
import { documented } from '../openapi-route.js';
import { clientOf } from '../request.js';

/** `GET /idempotency-keys/{key}`: "was I charged?", for whoever has only the key. */
export async function idempotencyKeyRoutes(
  app: FastifyInstance,
  { payments }: { payments: PaymentsContext },
): Promise<void> {
  app.get<{ Params: { key: string } }>(
    '/idempotency-keys/:key',
    {
      config: documented({
        scope: 'payments:read',
        summary: 'Where one of your own keys stands',
        description:
          'Percent-encode the key. After its answer has expired the key is not found here; the payment still is, by `external_payment_id`.',
        operation_id: 'getIdempotencyKey',
        tag: 'Idempotency',
        path_parameters: {
          key: { description: 'The key, as it was sent.', example: '3f1c8a52-8a0e-4a5c-9d0a-0f6f1f0c9b11' },
        },
        answers: { 200: { description: 'Its state, and what it made, as that is now.', schema: KeyStatus } },
        problems: ['not_found'],
      }),
    },
    async (request) => {
      const { key } = request.params;
      // A NUL can't be in a key, nor in a query to the database.
      if (key.includes('\u0000')) throw noSuchKey();
      const client_id = clientOf(request).id;
      const row = (await readKey(payments.pool, client_id, key)) ?? (await readQuoted(payments, client_id, key));
      if (!row) throw noSuchKey();
      return keyView(row);
    },
  );
}

/** Who sent a key as `"abc"` may ask for it so: it is the key `abc`, unless there is one that has the quotes in it. */
async function readQuoted({ pool }: PaymentsContext, client_id: string, text: string): Promise<KeyRow | undefined> {
  const key = unquoted(text);
  return key === null ? undefined : readKey(pool, client_id, key);
}

function noSuchKey(): OncepayError {
  return new OncepayError('not_found', 'There is no such key, or its answer has expired.');
}

function keyView(row: KeyRow) {
  return {
    key: row.key,
    kind: row.kind,
    state: row.state,
    created_at: row.created_at.toISOString(),
    lease_until: row.lease_until?.toISOString() ?? null,
    needs_review: row.needs_review,
    resource: resourceOf(row),
    expires_at: row.expires_at?.toISOString() ?? null,
  };
}

function resourceOf({ kind, payment_id, payment_status, operation_id, operation_kind, operation_status }: KeyRow) {
  if (payment_id === null || payment_status === null) return null;
  if (kind !== 'refund')
    return { type: 'payment', id: payment_id, href: resourcePath(kind, payment_id, ''), status: payment_status };
  // A refund that was refused made nothing, though its payment is there.
  if (operation_id === null || operation_status === null || operation_kind !== 'refund') return null;
  return {
    type: 'refund',
    id: operation_id,
    href: resourcePath(kind, payment_id, operation_id),
    status: operation_status,
  };
}
