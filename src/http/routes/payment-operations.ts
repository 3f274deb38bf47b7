import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { parseCancelCommand, parseCaptureCommand, parseRefundCommand } from '../../contract/requests.js';
import { CancelRequest, CaptureRequest, Payment, Refund, RefundRequest } from '../../contract/schemas.js';
import type { PaymentsContext } from '../../payments/context.js';
import { followUp } from '../../payments/follow-up.js';
import { sendAnswer } from '../standing-answer.js';
import { CAPTURE_EXAMPLES, REFUND_EXAMPLES } from '../openapi-examples.js';
import { documented } from '../openapi-route.js';
import { clientOf } from '../request.js';
import { findPayment, PAYMENT_ID } from './payments.js';

type Addressed = FastifyRequest<{ Params: { id: string } }>;

/** `POST /payments/{id}/capture`, `/cancel` and `/refunds`: what a payment goes through after its charge. */
export async function paymentOperationRoutes(
  app: FastifyInstance,
  { payments }: { payments: PaymentsContext },
): Promise<void> {
  const target = (request: FastifyRequest) =>
    findPayment(payments, clientOf(request), (request as Addressed).params.id, 'write');
  const run = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    if (!request.run || request.run.command.kind === 'charge') throw new Error('not an operation of a payment');
    return sendAnswer(reply, await followUp(payments, request.run.held, request.run.command));
  };

  app.post(
    '/payments/:id/capture',
    {
      config: {
        ...documented({
          scope: 'payments:write',
          summary: 'Capture what was authorized',
          description:
            'Once per payment, all of it or a part; the rest is released. Without `amount` all that is authorized.',
          operation_id: 'capturePayment',
          tag: 'Payments',
          path_parameters: PAYMENT_ID,
          body: CaptureRequest,
          body_examples: CAPTURE_EXAMPLES,
          body_required: false,
          idempotent: true,
          answers: paymentAnswers('Captured: the payment.'),
          problems: ['not_found', 'operation_in_progress', 'invalid_payment_state', 'amount_exceeds_remaining'],
        }),
        command: async (request) => parseCaptureCommand(request.body, await target(request)),
      },
    },
    run,
  );

  app.post(
    '/payments/:id/cancel',
    {
      config: {
        ...documented({
          scope: 'payments:write',
          summary: 'Cancel before money is taken',
          description: 'From `authorized` or `requires_action`.',
          operation_id: 'cancelPayment',
          tag: 'Payments',
          path_parameters: PAYMENT_ID,
          body: CancelRequest,
          body_required: false,
          idempotent: true,
          answers: paymentAnswers('Canceled: the payment.'),
          problems: ['not_found', 'operation_in_progress', 'invalid_payment_state'],
        }),
        command: async (request) => parseCancelCommand(request.body, await target(request)),
      },
    },
    run,
  );

  app.post(
    '/payments/:id/refunds',
    {
      config: {
        ...documented({
          scope: 'payments:write',
          summary: 'Give money back',
          description:
            'All that is left, or `amount` of it. Several refunds of a payment may run side by side; together they never pass what was captured.',
          operation_id: 'createRefund',
          tag: 'Refunds',
          path_parameters: PAYMENT_ID,
          body: RefundRequest,
          body_examples: REFUND_EXAMPLES,
          idempotent: true,
          answers: REFUND_ANSWERS,
          problems: ['not_found', 'card_number_rejected', 'invalid_payment_state', 'amount_exceeds_remaining'],
        }),
        command: async (request) => parseRefundCommand(request.body, await target(request)),
      },
    },
    run,
  );
}

const FINAL_HEADERS = ['Idempotency-Key-Expires', 'Idempotent-Replayed'] as const;

function paymentAnswers(done: string) {
  return {
    200: { description: done, schema: Payment, headers: FINAL_HEADERS },
    202: {
      description: 'The outcome is not known yet; the provider is being asked.',
      schema: Payment,
      headers: ['Idempotency-Key-Expires'],
    },
  } as const;
}

const REFUND_ANSWERS = {
  201: {
    description: 'The refund: `succeeded`, or `failed`.',
    schema: Refund,
    headers: ['Location', ...FINAL_HEADERS],
  },
  200: {
    description: 'The refund that this key once made, as it is now; its stored answer had expired.',
    schema: Refund,
    headers: ['Location', ...FINAL_HEADERS],
  },
  202: {
    description: 'The outcome is not known yet; the provider is being asked.',
    schema: Refund,
    headers: ['Location', 'Idempotency-Key-Expires'],
  },
} as const;
