import type { FastifyInstance } from 'fastify';
import { paymentCursor, parsePaymentListQuery } from '../../contract/query.js';
import { PaymentList, PaymentListParameters, Refund, RefundList, Timeline } from '../../contract/schemas.js';
import { paymentView, refundView } from '../../contract/views.js';
import type { PrismaClient } from '../../database/generated/client.js';
import { OncepayError } from '../../domain/errors.js';
import type { PaymentsContext } from '../../payments/context.js';
import { listPayments, listRefunds, readRefund } from '../../store/queries.js';
import { readTimeline } from '../../store/timeline.js';
import { documented } from '../openapi-route.js';
import { clientOf, parseId } from '../request.js';
import { findPayment, PAYMENT_ID, seePayment } from './payments.js';

export interface ReadRoutesOptions {
  readonly payments: PaymentsContext;
  readonly prisma: PrismaClient;
}

/** Lists of payments and refunds, one refund, and the timeline. */
export async function paymentReadRoutes(app: FastifyInstance, options: ReadRoutesOptions): Promise<void> {
  listRoute(app, options);
  refundRoutes(app, options);
  timelineRoute(app, options);
}

function listRoute(app: FastifyInstance, { payments }: ReadRoutesOptions): void {
  app.get(
    '/payments',
    {
      config: documented({
        scope: 'payments:read',
        summary: 'Payments, newest first',
        operation_id: 'listPayments',
        tag: 'Payments',
        query: PaymentListParameters,
        answers: { 200: { description: 'A page.', schema: PaymentList } },
        problems: ['validation_failed'],
      }),
    },
    async (request) => {
      const client = clientOf(request);
      const query = parsePaymentListQuery(request.query);
      const owner = client.scopes.includes('admin') ? 'everybody' : { client_id: client.id };
      const rows = await listPayments(payments.pool, owner, query);
      const page = rows.slice(0, query.limit);
      const last = page.at(-1);
      const next_cursor = rows.length > query.limit && last ? paymentCursor(query.filters, last.position) : null;
      return { data: page.map(({ payment }) => paymentView(payment)), next_cursor };
    },
  );
}

function refundRoutes(app: FastifyInstance, { payments }: ReadRoutesOptions): void {
  app.get<{ Params: { id: string } }>(
    '/payments/:id/refunds',
    {
      config: documented({
        scope: 'payments:read',
        summary: 'The refunds of a payment, oldest first',
        operation_id: 'listRefunds',
        tag: 'Refunds',
        path_parameters: PAYMENT_ID,
        answers: { 200: { description: 'All of them.', schema: RefundList } },
        problems: ['not_found'],
      }),
    },
    async (request) => {
      const payment = await findPayment(payments, clientOf(request), request.params.id);
      const refunds = await listRefunds(payments.pool, payment.id);
      return { data: refunds.map((refund) => refundView(payment, refund)) };
    },
  );

  app.get<{ Params: { id: string } }>(
    '/refunds/:id',
    {
      config: documented({
        scope: 'payments:read',
        summary: 'One refund, as it is now',
        operation_id: 'getRefund',
        tag: 'Refunds',
        path_parameters: {
          id: { description: 'The refund’s id.', example: '019b3c5e-7a10-7000-8000-000000000002', format: 'uuid' },
        },
        answers: { 200: { description: 'The refund.', schema: Refund } },
        problems: ['not_found'],
      }),
    },
    async (request) => {
      const id = parseId(request.params.id);
      const refund = id === null ? undefined : await readRefund(payments.pool, id);
      const payment = refund && (await seePayment(payments, clientOf(request), refund.payment_id));
      if (!payment) throw new OncepayError('not_found', 'There is no refund of this id.');
      return refundView(payment, refund);
    },
  );
}

function timelineRoute(app: FastifyInstance, { payments, prisma }: ReadRoutesOptions): void {
  app.get<{ Params: { id: string } }>(
    '/payments/:id/timeline',
    {
      config: documented({
        scope: 'payments:read',
        summary: 'All that happened to a payment, in order',
        description:
          'Requests by key, operations, attempts at the provider, its notifications, state changes, anomalies, what operators did.',
        operation_id: 'getTimeline',
        tag: 'Payments',
        path_parameters: PAYMENT_ID,
        answers: { 200: { description: 'The timeline.', schema: Timeline } },
        problems: ['not_found'],
      }),
    },
    async (request) => {
      const payment = await findPayment(payments, clientOf(request), request.params.id);
      return { data: await readTimeline(prisma, payment.id) };
    },
  );
}
