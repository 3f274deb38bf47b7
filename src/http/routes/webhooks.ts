import type { FastifyInstance } from 'fastify';
import { OncepayError } from '../../domain/errors.js';
import type { PaymentsContext } from '../../payments/context.js';
import { receiveWebhook } from '../../payments/receive-webhook.js';
import { useRawBodies } from '../body-parser.js';
import { documented } from '../openapi-route.js';

const BODY_LIMIT_BYTES = 1024 * 1024;

/** `POST /webhooks/{provider}`: the raw bytes, in this scope only; no API key and no rate limit stand in the way. */
export async function webhookRoutes(app: FastifyInstance, { payments }: { payments: PaymentsContext }): Promise<void> {
  useRawBodies(app, BODY_LIMIT_BYTES);
  app.post<{ Params: { provider: string } }>(
    '/webhooks/:provider',
    {
      bodyLimit: BODY_LIMIT_BYTES,
      config: {
        raw_body: true,
        ...documented({
          public: true,
          summary: 'A notification of a payment provider',
          description: 'Called by the provider, which signs it. Any answer but 200 means: send it again.',
          operation_id: 'receiveWebhook',
          tag: 'Webhooks',
          path_parameters: { provider: { description: 'The provider’s name.', example: 'sandbox' } },
          answers: { 200: { description: 'Taken, or known already.' } },
          problems: ['not_found', 'unauthenticated', 'body_too_large'],
        }),
      },
    },
    async (request, reply) => {
      const provider = payments.providers.get(request.params.provider);
      if (!provider) throw new OncepayError('not_found', 'There is no such provider here.');
      const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
      await receiveWebhook(payments, provider, request.headers, body);
      return reply.code(200).send();
    },
  );
}
