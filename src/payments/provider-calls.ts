import { createHash } from 'node:crypto';
import { currentCharge } from '../domain/apply-charge-fact.js';
import type { ChargeFact, Fact } from '../domain/fact.js';
import type { Operation, Payment } from '../domain/payment.js';
import type { PaymentProvider, ProviderMetadata, RetrieveTarget } from '../providers/provider.js';
import { ProviderError } from '../providers/provider.js';
import type { AttemptRecord } from '../store/settle.js';
import type { PaymentsContext } from './context.js';

/** An operation about to be talked about with its provider. */
export interface Subject {
  readonly payment: Payment;
  /** At least all charges of the payment, and the operation itself. */
  readonly operations: readonly Operation[];
  readonly operation: Operation;
}

export type CallResult<Value> =
  { readonly type: 'value'; readonly value: Value } | { readonly type: 'error'; readonly error: ProviderError };

/** A call with what the timeline keeps of it. */
export interface Call<Value> {
  readonly result: CallResult<Value>;
  readonly attempt: AttemptRecord;
}

export function providerOf(ctx: PaymentsContext, name: string): PaymentProvider {
  const provider = ctx.providers.get(name);
  // Not configured (any more): nothing can be said about its payments now, and nothing is made up (R5).
  if (!provider) throw new ProviderError('unknown', 'not_configured', `provider ${name} is not configured`);
  return provider;
}

/** Sends the operation to its provider: one attempt, with the operation's own provider key. Never throws. */
export function sendOperation(ctx: PaymentsContext, subject: Subject, timeout_ms: number): Promise<Call<Fact>> {
  return call(ctx, subject.payment.provider, subject.operation.kind, 'send', () => request(ctx, subject, timeout_ms));
}

/** Asks what became of the operation; moves nothing. Never throws. */
export function askAbout(
  ctx: PaymentsContext,
  subject: Subject,
  timeout_ms: number,
): Promise<Call<Fact | 'not_found' | 'not_visible_yet'>> {
  return call(ctx, subject.payment.provider, `retrieve_${subject.operation.kind}`, 'ask', () =>
    providerOf(ctx, subject.payment.provider).retrieve(retrieveTarget(ctx, subject), { timeout_ms }),
  );
}

/** Closes a declined try for good, so that it can't succeed beside the next one. Never throws. */
export function closeTry(
  ctx: PaymentsContext,
  payment: Payment,
  declined: Operation,
  timeout_ms: number,
): Promise<Call<ChargeFact>> {
  return call(ctx, payment.provider, 'close', 'close', () =>
    providerOf(ctx, payment.provider).cancel(
      { provider_payment_id: declined.provider_payment_id ?? '', metadata: metadataOf(ctx, payment, declined) },
      { provider_key: closeKey(declined.provider_key), timeout_ms },
    ),
  );
}

/** The provider key under which a declined try is closed: derived, so that closing again is the same request. */
export function closeKey(provider_key: string): string {
  return createHash('sha256').update(`close ${provider_key}`).digest('hex');
}

function request(ctx: PaymentsContext, { payment, operations, operation }: Subject, timeout_ms: number): Promise<Fact> {
  const provider = providerOf(ctx, payment.provider);
  const options = { provider_key: operation.provider_key, timeout_ms };
  const metadata = metadataOf(ctx, payment, operation);
  const { amount_minor } = operation;
  const { currency } = payment;
  if (operation.kind === 'charge') {
    const { payment_method } = operation;
    const { capture, return_url } = payment;
    return provider.charge({ amount_minor, currency, payment_method, capture, return_url, metadata }, options);
  }
  const provider_payment_id = chargeOf(payment, operations, operation)?.provider_payment_id ?? '';
  switch (operation.kind) {
    case 'capture':
      return provider.capture({ provider_payment_id, amount_minor, currency, metadata }, options);
    case 'cancel':
      return provider.cancel({ provider_payment_id, metadata }, options);
    case 'refund':
      return provider.refund(
        { provider_payment_id, amount_minor, currency, reason: operation.reason, metadata },
        options,
      );
  }
}

/**
 * The charge that an operation belongs to: for a refund of an excess that one, else the one that the payment counts. Of a
 * payment that was taken twice two charges have money.
 */
export function chargeOf(
  payment: Pick<Payment, 'provider_payment_id'>,
  operations: readonly Operation[],
  operation: Operation,
): Operation | undefined {
  if (operation.kind === 'charge') return operation;
  if (operation.excess_operation_id !== null) return operations.find((o) => o.id === operation.excess_operation_id);
  const taken = operations.filter(
    (o) => o.kind === 'charge' && (o.status === 'succeeded' || o.status === 'authorized'),
  );
  const counted = taken.find((o) => o.provider_payment_id === payment.provider_payment_id);
  return counted ?? taken[0] ?? currentCharge(operations);
}

function retrieveTarget(ctx: PaymentsContext, { payment, operations, operation }: Subject): RetrieveTarget {
  const charge = chargeOf(payment, operations, operation);
  return {
    kind: operation.kind,
    reference: operation.provider_key,
    charge_reference: charge?.provider_key ?? operation.provider_key,
    provider_payment_id: charge?.provider_payment_id ?? null,
    provider_refund_id: operation.provider_refund_id,
    currency: payment.currency,
    external_payment_id: payment.external_payment_id,
    installation_id: ctx.installation_id,
  };
}

function metadataOf(ctx: PaymentsContext, payment: Payment, operation: Operation): ProviderMetadata {
  return {
    reference: operation.provider_key,
    installation_id: ctx.installation_id,
    external_payment_id: payment.external_payment_id,
  };
}

async function call<Value extends Fact | string>(
  ctx: PaymentsContext,
  provider: string,
  name: string,
  action: AttemptRecord['action'],
  run: () => Promise<Value>,
): Promise<Call<Value>> {
  const started = performance.now();
  const at = new Date().toISOString();
  // Started by a promise: what throws at once (no such provider, a defect) is an error like one that comes later.
  const result = await Promise.resolve()
    .then(run)
    .then(
      (value): CallResult<Value> => ({ type: 'value', value }),
      (error: unknown): CallResult<Value> => ({ type: 'error', error: asProviderError(ctx, error) }),
    );
  const duration_ms = Math.round(performance.now() - started);
  const outcome = describe(result);
  ctx.metrics.observeProviderCall(provider, name, outcome, duration_ms);
  return { result, attempt: { action, at, duration_ms, outcome } };
}

/** An adapter's defect says nothing about the money either: unknown. */
function asProviderError(ctx: PaymentsContext, error: unknown): ProviderError {
  if (error instanceof ProviderError) return error;
  ctx.logger.error({ err: error }, 'a provider adapter failed');
  return new ProviderError('unknown', 'adapter_error', 'the provider adapter failed', { cause: error });
}

function describe(result: CallResult<Fact | string>): string {
  if (result.type === 'error') return result.error.reason;
  return typeof result.value === 'string' ? result.value : result.value.status;
}
