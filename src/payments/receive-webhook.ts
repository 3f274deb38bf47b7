import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { isUnavailable } from '../database/errors.js';
import { inTransaction } from '../database/transaction.js';
import { OncepayError } from '../domain/errors.js';
import { InvalidSignature, type PaymentProvider, ProviderError, type ProviderEvent } from '../providers/provider.js';
import type { Found } from '../store/find-operation.js';
import { type EventOutcome, type EventToKeep, recordFailure } from '../store/provider-events.js';
import type { PaymentsContext } from './context.js';
import { applyEvent } from './receive-event.js';

/** So often an event may fail before it is set aside: one poison event must not get the endpoint disabled. */
const FAILURES_MAX = 8;
const LONGEST_REASON = 500;
/** What an event's id looks like; where one does not, or has none, its digest stands for it. */
const EVENT_ID = /^[\x21-\x7e]{1,255}$/;

/**
 * Takes a provider's notification: verified over its raw bytes, completed where it does not carry all, and applied once
 * per event id. What fails is thrown, with nothing marked, so that the provider sends it again; what fails again and
 * again is parked instead: kept for operators, and acknowledged.
 * @throws OncepayError `unauthenticated`: not signed by the provider; `internal`, `unavailable`: to be sent again
 */
export async function receiveWebhook(
  ctx: PaymentsContext,
  provider: PaymentProvider,
  headers: IncomingHttpHeaders,
  body: Buffer,
): Promise<void> {
  let event: EventToKeep = { event_id: nameOf(headers['webhook-id'], body), type: 'unreadable', fact: null };
  const trace: { found: Found | null } = { found: null };
  let outcome: EventOutcome | 'duplicate';
  try {
    const parsed = provider.parseWebhook(headers, body);
    const named = { ...parsed, event_id: nameOf(parsed.event_id, parsed.event_id) };
    event = named;
    const complete = await completed(ctx, provider, named);
    outcome = await inTransaction(ctx.pool, (tx) => applyEvent(ctx, tx, provider.name, complete, trace));
  } catch (error) {
    outcome = await failed(ctx, provider.name, event, trace.found, error);
  }
  ctx.metrics.countWebhook(provider.name, outcome);
}

/** Asks for what the notification does not carry: outside any transaction, and within a limit. */
async function completed(
  ctx: PaymentsContext,
  provider: PaymentProvider,
  event: ProviderEvent,
): Promise<ProviderEvent> {
  return (await provider.completeEvent?.(event, { timeout_ms: ctx.timing.provider_timeout_ms })) ?? event;
}

/** @returns `parked`; otherwise throws what the provider is to be told */
async function failed(
  ctx: PaymentsContext,
  provider: string,
  event: EventToKeep,
  found: Found | null,
  error: unknown,
): Promise<'parked'> {
  if (error instanceof InvalidSignature) {
    ctx.metrics.countWebhook(provider, 'invalid_signature');
    throw new OncepayError('unauthenticated', `The signature is not valid: ${error.message}`);
  }
  // The database's own trouble is held against no event.
  if (isUnavailable(error)) {
    ctx.metrics.countWebhook(provider, 'unavailable');
    throw error;
  }
  ctx.logger.error({ err: error, provider, event_id: event.event_id }, 'a webhook could not be applied');
  const reason = (error instanceof Error ? error.message : String(error)).slice(0, LONGEST_REASON);
  const outcome = await recordFailure(ctx.pool, provider, event, { ...found, reason, failures_max: FAILURES_MAX });
  if (outcome === 'parked') return outcome;
  ctx.metrics.countWebhook(provider, 'failing');
  if (error instanceof ProviderError)
    throw new OncepayError('unavailable', 'The provider can’t be asked about this event now. Send it again.');
  throw new OncepayError('internal', 'The event could not be applied. Send it again.');
}

/** The id that an event goes by: the provider's own, or the digest of what would be the same when it is sent again. */
function nameOf(id: unknown, otherwise: string | Buffer): string {
  if (typeof id === 'string' && EVENT_ID.test(id)) return id;
  return `sha256-${createHash('sha256').update(otherwise).digest('hex')}`;
}
