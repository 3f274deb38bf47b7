import type { PrismaClient } from '../database/generated/client.js';
import { formatAmount } from '../domain/money.js';

export interface TimelineItem {
  readonly at: Date;
  readonly type: 'request' | 'operation' | 'attempt' | 'provider_event' | 'state_change' | 'anomaly' | 'operator';
  readonly operation_id: string | null;
  readonly detail: Readonly<Record<string, unknown>>;
}

/** Of each sort at most so many: a payment with more has been in trouble that a list can't tell. */
const MAX_ROWS = 1_000;

/** Of things at the same instant, what led to what: the order in which they are listed. */
const ORDER: readonly TimelineItem['type'][] = [
  'request',
  'operation',
  'attempt',
  'provider_event',
  'state_change',
  'anomaly',
  'operator',
];

type Operations = Awaited<ReturnType<typeof readRows>>['operations'];

/** All that happened to a payment, in order. No secrets, no raw bodies: none are kept. */
export async function readTimeline(prisma: PrismaClient, payment_id: string): Promise<TimelineItem[]> {
  const payment = await readRows(prisma, payment_id);
  const items: TimelineItem[] = [
    {
      at: payment.createdAt,
      type: 'state_change',
      operation_id: null,
      detail: { from: null, to: 'processing', version: 1, cause: 'request' },
    },
    ...historyItems(payment.history),
    ...payment.operations.flatMap((operation) => operationItems(operation, payment.currency)),
    ...payment.providerEvents.map((event) => ({
      at: event.receivedAt,
      type: 'provider_event' as const,
      operation_id: event.operationId,
      detail: { event_id: event.eventId, type: event.type, outcome: event.outcome, says: event.fact },
    })),
    ...payment.anomalies.map((anomaly) => ({
      at: anomaly.createdAt,
      type: 'anomaly' as const,
      operation_id: anomaly.operationId,
      detail: { kind: anomaly.kind, ...objectOf(anomaly.detail), resolved_at: anomaly.resolvedAt },
    })),
    ...payment.timelineEntries.map((entry) => ({
      at: entry.createdAt,
      type: entry.type === 'operator' ? ('operator' as const) : ('request' as const),
      operation_id: entry.operationId,
      detail: objectOf(entry.detail),
    })),
  ];
  return items.sort((a, b) => a.at.getTime() - b.at.getTime() || ORDER.indexOf(a.type) - ORDER.indexOf(b.type));
}

function readRows(prisma: PrismaClient, payment_id: string) {
  return prisma.payment.findUniqueOrThrow({
    where: { id: payment_id },
    include: {
      operations: { orderBy: { createdAt: 'asc' }, take: MAX_ROWS },
      providerEvents: { orderBy: { receivedAt: 'asc' }, take: MAX_ROWS },
      anomalies: { orderBy: { createdAt: 'asc' }, take: MAX_ROWS },
      timelineEntries: { orderBy: { createdAt: 'asc' }, take: MAX_ROWS },
    },
  });
}

function operationItems(operation: Operations[number], currency: string): TimelineItem[] {
  const { id: operation_id, createdAt: at } = operation;
  const asked: TimelineItem[] =
    operation.idempotencyKey === null
      ? []
      : [
          {
            at,
            type: 'request',
            operation_id,
            detail: { idempotency_key: operation.idempotencyKey, kind: operation.kind },
          },
        ];
  const detail = {
    kind: operation.kind,
    origin: operation.origin,
    ...(operation.kind === 'charge' ? { try_number: operation.tryNumber } : {}),
    ...(operation.kind === 'cancel' ? {} : { amount: formatAmount(operation.amountMinor, currency) }),
    status: operation.status,
    failure_code: operation.failureCode,
    attempts_started: operation.attemptsStarted,
    attempts_finished: operation.attemptsFinished,
    next_check_at: operation.checkAt,
    needs_review_at: operation.needsReviewAt,
  };
  return [...asked, { at, type: 'operation', operation_id, detail }, ...attemptItems(operation)];
}

function attemptItems(operation: Operations[number]): TimelineItem[] {
  return listOf(operation.attempts).map(({ at, ...detail }) => ({
    at: new Date(String(at)),
    type: 'attempt',
    operation_id: operation.id,
    detail,
  }));
}

function historyItems(history: unknown): TimelineItem[] {
  return listOf(history).map(({ at, operation_id, ...detail }) => ({
    at: new Date(String(at)),
    type: 'state_change',
    operation_id: typeof operation_id === 'string' ? operation_id : null,
    detail,
  }));
}

function listOf(json: unknown): Record<string, unknown>[] {
  return Array.isArray(json) ? json.map(objectOf) : [];
}

function objectOf(json: unknown): Record<string, unknown> {
  return typeof json === 'object' && json !== null ? { ...json } : {};
}
