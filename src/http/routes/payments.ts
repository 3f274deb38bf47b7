import type { FastifyInstance } from 'fastify';
import { paymentView } from '../../contract/views.js';
import { parseChargeCommand } from '../../contract/requests.js';
import { ChargeRequest, Payment } from '../../contract/schemas.js';
import { OncepayError } from '../../domain/errors.js';
import type { Payment as PaymentRow } from '../../domain/payment.js';
import { charge } from '../../payments/charge.js';
import type { PaymentsContext } from '../../payments/context.js';
import { readPayment } from '../../store/payments.js';
import type { AuthenticatedClient } from '../../clients/directory.js';
import { sendAnswer } from '../standing-answer.js';
import { CHARGED_EXAMPLES, CHARGE_EXAMPLES } from '../openapi-examples.js';
import { documented } from '../openapi-route.js';
import { clientOf, parseId } from '../request.js';

export const PAYMENT_ID = {
  id: { description: 'The payment’s id.', example: '019b3c5e-7a10-7000-8000-000000000001', format: 'uuid' },
} as const;

/** `POST /payments`, `GET /payments/{id}`. */
export async function paymentRoutes(app: FastifyInstance, { payments }: { payments: PaymentsContext }): Promise<void> {
  app.post(
    '/payments',
    {
      config: {
        ...documented({
          scope: 'payments:write',
          summary: 'Charge, or authorize',
          description: CHARGE_DESCRIPTION,
          operation_id: 'createCharge',
          tag: 'Payments',
          body: ChargeRequest,
          body_examples: CHARGE_EXAMPLES,
          idempotent: true,
          answers: CHARGE_ANSWERS,
          problems: ['card_number_rejected', 'external_payment_id_taken', 'operation_in_progress'],
        }),
        command: (request) => parseChargeCommand(request.body, { providers: payments.providers.names }),
      },
    },
    async (request, reply) => {
      if (request.run?.command.kind !== 'charge') throw new Error('not a charge');
      return sendAnswer(reply, await charge(payments, request.run.held, request.run.command));
    },
  );

  app.get<{ Params: { id: string } }>(
    '/payments/:id',
    {
      config: documented({
        scope: 'payments:read',
        summary: 'One payment, as it is now',
        operation_id: 'getPayment',
        tag: 'Payments',
        path_parameters: PAYMENT_ID,
        answers: { 200: { description: 'The payment.', schema: Payment } },
        problems: ['not_found'],
      }),
    },
    async (request) => {
      const payment = await findPayment(payments, clientOf(request), request.params.id);
      request.payment_id = payment.id;
      return paymentView(payment);
    },
  );
}

/**
 * A payment that the client may see: its own; `admin` reads everybody's. Another client's is not told apart from none.
 * @throws OncepayError not_found
 */
export async function findPayment(
  ctx: PaymentsContext,
  client: AuthenticatedClient,
  id_text: string,
  access: 'read' | 'write' = 'read',
): Promise<PaymentRow> {
  const payment = await seePayment(ctx, client, id_text, access);
  if (!payment) throw new OncepayError('not_found', 'There is no payment of this id.');
  return payment;
}

/** The same; undefined where there is none for this client. */
export async function seePayment(
  ctx: PaymentsContext,
  client: AuthenticatedClient,
  id_text: string,
  access: 'read' | 'write' = 'read',
): Promise<PaymentRow | undefined> {
  const id = parseId(id_text);
  const payment = id === null ? undefined : await readPayment(ctx.pool, id);
  const isVisible = payment?.client_id === client.id || (access === 'read' && client.scopes.includes('admin'));
  return isVisible ? payment : undefined;
}

const CHARGE_DESCRIPTION = `Charges a customer once, however often this request is repeated with its \`Idempotency-Key\`.
With \`"capture": "manual"\` the money is only authorized. A decline is 201 with \`status: "failed"\`; the payment may then be
paid again: the same body under a new key, with any \`payment_method\`.`;

const CHARGE_ANSWERS = {
  201: {
    description:
      'Charged, authorized, declined, or waiting for the customer: see `status`. This answer is final for its key.',
    schema: Payment,
    headers: ['Location', 'Idempotency-Key-Expires', 'Idempotent-Replayed'],
    examples: CHARGED_EXAMPLES,
  },
  200: {
    description: 'A payment of this `external_payment_id` existed already, made by the same command under another key.',
    schema: Payment,
    headers: ['Location', 'Idempotency-Key-Expires', 'Idempotent-Replayed'],
  },
  202: {
    description:
      'The outcome is not known yet; the provider is being asked. Repeat the request with the same key, or look at the payment.',
    schema: Payment,
    headers: ['Location', 'Idempotency-Key-Expires'],
  },
} as const;
