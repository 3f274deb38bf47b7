import { setTimeout as delay } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { newId } from '../domain/id.js';
import { SUCCESS_STATUS } from '../contract/answer.js';
import type { Command } from '../domain/command.js';
import { OncepayError } from '../domain/errors.js';
import { deadlineIn } from '../payments/clock.js';
import type { PaymentsContext } from '../payments/context.js';
import { reservation } from '../payments/reserve.js';
import type { Held } from '../payments/run.js';
import type { NewChargeResult } from '../store/reserve-and-begin.js';
import { endLease } from '../store/records.js';
import type { ReserveItem, ReserveResult } from '../store/reserve.js';
import { readIdempotencyKey } from './idempotency-key.js';
import { clientOf } from './request.js';
import { sendStanding } from './standing-answer.js';

/** How a money route gets from a request to its command: finds its target (404) and validates (400). */
export type CommandReader = (request: FastifyRequest) => Command | Promise<Command>;

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Every route that moves money has this, else the service does not start. */
    command?: CommandReader;
  }
  interface FastifyRequest {
    idempotency_key: string | null;
    /** Set by the reservation: the handler runs this command under this lease. */
    run: { readonly held: Held; readonly command: Command } | null;
  }
}

const MAX_WAIT_S = 30;
const FIRST_POLL_MS = 25;
const LONGEST_POLL_MS = 250;

/**
 * The first guard (docs/idempotency.md). For every money route, in this order: key (preValidation), target and body,
 * then the reservation (preHandler). Whatever is refused before the reservation never touches the key.
 */
export const idempotency = fastifyPlugin(async function idempotency(
  app: FastifyInstance,
  { payments }: { payments: PaymentsContext },
) {
  app.decorateRequest('idempotency_key', null);
  app.decorateRequest('run', null);

  app.addHook('onRoute', (route: RouteOptions) => {
    const methods = [route.method].flat();
    if (!methods.includes('POST') || route.config?.scope !== 'payments:write') return;
    if (!route.config.command) {
      throw new Error(`POST ${route.url} moves money without the idempotency guard: give it config.command`);
    }
    route.preValidation = [takeKey, ...[route.preValidation ?? []].flat()];
    route.preHandler = [reserveKey, ...[route.preHandler ?? []].flat()];
  });

  app.addHook('onError', async (request, _reply, error) => {
    if (!request.run || error instanceof OncepayError) return;
    // Nothing is known to have ended: the retry resumes, and need not wait for the lease.
    payments.metrics.countIdempotency('released');
    await endLease(payments.pool, request.run.held.lease).catch((cause: unknown) => {
      request.log.warn({ err: cause }, 'a lease could not be ended early; it runs out by itself');
    });
  });

  async function reserveKey(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> {
    const { command: readCommand } = request.routeOptions.config;
    if (!readCommand) throw new Error('a money route without a command');
    const command = await readCommand(request);
    const item = reserveItem(request, command);
    const { result, begun, deadline } = await reserveOrWait(
      payments,
      request,
      reply,
      reservation(payments, item, command),
    );
    if (result.type !== 'reserved') return sendStanding(payments, request, reply, item, result);
    const { lease, taken_over } = result;
    payments.metrics.countIdempotency(taken_over ? 'resumed' : 'new');
    request.payment_id = lease.payment_id;
    request.run = { held: { lease, taken_over, begun, deadline, request_id: request.id }, command };
    await payments.atStep('reserved', lease.operation_id);
    return undefined;
  }
});

/** With `Prefer: wait=N` a key in progress is looked at until it ends, or until its lease does: then it is ours. */
async function reserveOrWait(
  payments: PaymentsContext,
  request: FastifyRequest,
  reply: FastifyReply,
  reserve: () => Promise<NewChargeResult>,
): Promise<{ result: ReserveResult; begun: NewChargeResult['begun']; deadline: Held['deadline'] }> {
  const wait_ms = readPreferWait(request) * 1000;
  const patience = deadlineIn(wait_ms);
  for (let poll_ms = FIRST_POLL_MS; ; poll_ms = Math.min(poll_ms * 1.5, LONGEST_POLL_MS)) {
    // Started before the lease is asked for, so that it ends before the lease does.
    const deadline = deadlineIn(payments.timing.lease_ms);
    const { reserved: result, begun } = await reserve();
    // Nobody waits for a client that is gone, and no wait holds the end of this instance: another one answers as well.
    const isOver = patience.left_ms() <= 0 || reply.raw.destroyed || request.server.isDraining();
    if (result.type !== 'in_progress' || isOver) return { result, begun, deadline };
    await delay(Math.max(1, Math.min(poll_ms, patience.left_ms())));
  }
}

async function takeKey(request: FastifyRequest): Promise<void> {
  request.idempotency_key = readIdempotencyKey(request.raw.rawHeaders);
}

/** The ids of everything that this command makes are made here, once (R1). */
function reserveItem(request: FastifyRequest, command: Command): ReserveItem {
  return {
    client_id: clientOf(request).id,
    key: request.idempotency_key ?? '',
    kind: command.kind,
    command_hash: command.hash,
    token: newId(),
    payment_id: command.kind === 'charge' ? newId() : command.payment_id,
    operation_id: newId(),
    success_status: SUCCESS_STATUS[command.kind],
  };
}

/** Seconds of `Prefer: wait=N` (RFC 7240), at most 30; anything else in that header is ignored, as the RFC says. */
export function readPreferWait(request: FastifyRequest): number {
  const { prefer } = request.headers;
  if (prefer === undefined) return 0;
  const wait = /(?:^|,)\s*wait\s*=\s*"?(\d{1,6})"?\s*(?:[;,]|$)/i.exec([prefer].flat().join(','));
  return wait ? Math.min(Number(wait[1]), MAX_WAIT_S) : 0;
}
