import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Answer, locationOf } from '../contract/answer.js';
import { OncepayError } from '../domain/errors.js';
import type { PaymentsContext } from '../payments/context.js';
import { answerOpen } from '../payments/open-keys.js';
import type { ReserveItem, ReserveResult } from '../store/reserve.js';
import { PROBLEM_CONTENT_TYPE } from './problem-handler.js';

const JSON_CONTENT_TYPE = 'application/json; charset=utf-8';

type Standing = Exclude<ReserveResult, { type: 'reserved' }>;

/**
 * Answers a request whose key stands already: the stored answer byte for byte, 202 while the outcome is open.
 * @throws OncepayError `idempotency_key_reused`, `idempotency_key_in_progress`
 */
export async function sendStanding(
  payments: PaymentsContext,
  request: FastifyRequest,
  reply: FastifyReply,
  item: ReserveItem,
  standing: Standing,
): Promise<FastifyReply> {
  switch (standing.type) {
    case 'done': {
      payments.metrics.countIdempotency('replayed');
      const { kind, http_status: status, body, expires_at, payment_id, operation_id } = standing;
      request.payment_id = payment_id;
      const location = locationOf(kind, status, payment_id, operation_id);
      return sendAnswer(reply, { status, body, expires_at, location, replayed: true });
    }
    case 'open': {
      const answer = await answerOpen(payments, { client_id: item.client_id, key: item.key, ...standing }, request.id);
      payments.metrics.countIdempotency(answer.replayed ? 'replayed' : 'open');
      request.payment_id = standing.payment_id;
      return sendAnswer(reply, answer);
    }
    case 'reused': {
      payments.metrics.countIdempotency('reused');
      sayExpiry(reply, standing.expires_at ?? retentionFromNow(payments));
      const detail = 'This key stands for another command: another target, amount or other content.';
      throw new OncepayError('idempotency_key_reused', detail);
    }
    case 'in_progress':
      throw inProgress(payments, reply, item.key, standing.lease_left_ms);
  }
}

function inProgress(payments: PaymentsContext, reply: FastifyReply, key: string, lease_left_ms: number): OncepayError {
  payments.metrics.countIdempotency('in_progress');
  sayExpiry(reply, retentionFromNow(payments));
  const status_url = `/idempotency-keys/${encodeURIComponent(key)}`;
  reply.header('link', `<${status_url}>; rel="status"`);
  return new OncepayError(
    'idempotency_key_in_progress',
    'A request with this key is still running. Ask again with the same key.',
    { retry_after_s: Math.max(1, Math.ceil(lease_left_ms / 1000)), members: { status_url } },
  );
}

/** A key without its final answer stands at least so long. */
function retentionFromNow(payments: PaymentsContext): Date {
  return new Date(Date.now() + payments.retention_ms);
}

function sayExpiry(reply: FastifyReply, expires_at: Date): void {
  reply.header('idempotency-key-expires', expires_at.toUTCString());
}

/** Sends a stored text as it is. A string skips the response serializer: nothing after the commit can make it a 500. */
export function sendAnswer(reply: FastifyReply, answer: Answer): FastifyReply {
  reply.code(answer.status).header('content-type', answer.status < 400 ? JSON_CONTENT_TYPE : PROBLEM_CONTENT_TYPE);
  if (answer.location !== null) reply.header('location', answer.location);
  if (answer.expires_at !== null) sayExpiry(reply, answer.expires_at);
  if (answer.replayed) reply.header('idempotent-replayed', 'true');
  return reply.send(answer.body);
}
