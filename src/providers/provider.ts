import type { IncomingHttpHeaders } from 'node:http';
import type { ChargeFact, Fact, RefundFact } from '../domain/fact.js';
import type { CaptureMode, OperationKind } from '../domain/payment.js';

/**
 * The port to what moves the money. An adapter translates; it decides nothing and keeps nothing. It never retries by
 * itself and never follows a client's connection: how often and how long is the use case's business.
 */
export interface PaymentProvider {
  readonly name: string;
  /** How long the provider surely remembers an idempotency key, in milliseconds. */
  readonly keyMemory_ms: number;
  charge(request: ChargeRequest, options: CallOptions): Promise<ChargeFact>;
  /** A manual capture: the charge as it is afterwards. */
  capture(request: CaptureRequest, options: CallOptions): Promise<ChargeFact>;
  /**
   * Cancels an authorization, an open action, or closes a declined try for good: the charge as it is afterwards,
   * `canceled`, or what it had become meanwhile. A provider that refuses because the charge is past cancelling
   * is an error of kind `refused`.
   */
  cancel(request: CancelRequest, options: CallOptions): Promise<ChargeFact>;
  refund(request: RefundRequest, options: CallOptions): Promise<RefundFact>;
  /**
   * Asks what became of an operation, without moving anything. For `charge`, `capture` and `cancel` the fact is the
   * charge as it now is. `not_found`: the provider has never heard of it *now* (the request may still be under way).
   * `not_visible_yet`: its look-up lags, so that nothing can be said.
   */
  retrieve(
    target: RetrieveTarget,
    options: Omit<CallOptions, 'provider_key'>,
  ): Promise<Fact | 'not_found' | 'not_visible_yet'>;
  /**
   * Verifies the signature over the raw bytes first, and only then reads them.
   * @throws InvalidSignature; any other error means signed, but not to be read: counted, and parked in the end
   */
  parseWebhook(headers: IncomingHttpHeaders, rawBody: Buffer): ProviderEvent;
  /**
   * Optional: asks the provider for what a verified notification did not carry (a refund made at Stripe's dashboard
   * does not say whose charge it is on). Outside any transaction. An error of kind `unknown` or `not_sent` means: not
   * now, let the provider send the notification again.
   */
  completeEvent?(event: ProviderEvent, options: Omit<CallOptions, 'provider_key'>): Promise<ProviderEvent>;
}

/** For every call: the provider key of the operation, and how long this one attempt may take. */
export interface CallOptions {
  readonly provider_key: string;
  readonly timeout_ms: number;
}

/** Kept at the provider with what we make there. Nothing in it is made anew after a lost database. */
export interface ProviderMetadata {
  /** The operation's provider key. */
  readonly reference: string;
  readonly installation_id: string;
  readonly external_payment_id: string;
}

export interface ChargeRequest {
  readonly amount_minor: bigint;
  readonly currency: string;
  readonly payment_method: string | null;
  readonly capture: CaptureMode;
  readonly return_url: string | null;
  readonly metadata: ProviderMetadata;
}

export interface CaptureRequest {
  readonly provider_payment_id: string;
  readonly amount_minor: bigint;
  readonly currency: string;
  readonly metadata: ProviderMetadata;
}

export interface CancelRequest {
  readonly provider_payment_id: string;
  readonly metadata: ProviderMetadata;
}

export interface RefundRequest {
  readonly provider_payment_id: string;
  readonly amount_minor: bigint;
  readonly currency: string;
  readonly reason: string | null;
  readonly metadata: ProviderMetadata;
}

export interface RetrieveTarget {
  readonly kind: OperationKind;
  /** The provider key of the operation asked about (for a refund: the refund's, for the others see `charge_reference`). */
  readonly reference: string;
  /** The provider key of the charge that the operation belongs to; for a charge its own. */
  readonly charge_reference: string;
  /** The provider's own name for the charge, where it is known. */
  readonly provider_payment_id: string | null;
  readonly provider_refund_id: string | null;
  readonly currency: string;
  readonly external_payment_id: string;
  readonly installation_id: string;
}

/** A notification, verified and in our words. */
export interface ProviderEvent {
  /** The provider's id of the event: the same over redeliveries. */
  readonly event_id: string;
  readonly type: string;
  readonly occurred_at: Date;
  /** The metadata that we gave: of the charge, and of the refund where the fact speaks of one. Null: not ours. */
  readonly charge_metadata: ProviderMetadata | null;
  readonly refund_metadata: ProviderMetadata | null;
  /** Null: a type that says nothing about a charge or refund, or one of another mode (test on live). */
  readonly fact: Fact | null;
}

/**
 * What an error means for *this attempt*. `not_sent`: it surely did not reach the provider (connection refused).
 * `refused`: the provider looked at this very request and said no (a 4xx about it). `unknown`: anything else: time-out,
 * reset, 5xx also a replayed one, and the answers that are never an outcome of a payment: 401, 403, 429, key in use,
 * a key's parameter mismatch.
 */
export type ProviderErrorKind = 'not_sent' | 'refused' | 'unknown';

export class ProviderError extends Error {
  override readonly name = 'ProviderError';
  constructor(
    readonly kind: ProviderErrorKind,
    /** A short word for the metric and the timeline: `timeout`, `connection_reset`, `http_503`, `key_in_use`, … */
    readonly reason: string,
    message: string,
    options?: ErrorOptions & { readonly failure?: ChargeFact['failure'] },
  ) {
    super(message, options);
    this.failure = options?.failure ?? null;
  }
  /** `refused` only: what to tell the client, from the closed list. */
  readonly failure: ChargeFact['failure'];
}

export class InvalidSignature extends Error {
  override readonly name = 'InvalidSignature';
}
