/**
 * Every code that a caller can be answered with. Closed: the problem table (contract/problems.ts) is a Record over it,
 * so that a forgotten one does not compile. No HTTP in here: Kafka commands are rejected with the same codes.
 */
export const ERROR_CODES = [
  'idempotency_key_missing',
  'idempotency_key_invalid',
  'validation_failed',
  'malformed_body',
  'card_number_rejected',
  'unauthenticated',
  'forbidden',
  'not_found',
  'method_not_allowed',
  'request_timeout',
  'idempotency_key_reused',
  'idempotency_key_in_progress',
  'external_payment_id_taken',
  'operation_in_progress',
  'invalid_payment_state',
  'amount_exceeds_remaining',
  'body_too_large',
  'uri_too_long',
  'unsupported_media_type',
  'rate_limited',
  'headers_too_large',
  'internal',
  'unavailable',
] as const;
export type ErrorCode = (typeof ERROR_CODES)[number];

export interface FieldError {
  /** Where: a JSON Pointer into the body, or `query/<name>`, `header/<name>`. */
  readonly path: string;
  readonly message: string;
}

/** An expected refusal. Anything else that is thrown is a defect or an outage. */
export class OncepayError extends Error {
  override readonly name = 'OncepayError';
  constructor(
    readonly code: ErrorCode,
    /** For the caller: says what is wrong here and what to do; no secrets, nothing about the inside. */
    readonly detail: string,
    readonly extra: {
      readonly errors?: readonly FieldError[];
      /** Whole seconds, for `Retry-After`. */
      readonly retry_after_s?: number;
      /** Further members of the problem: `payment_id`, `status_url`, `remaining`, `payment_status`. */
      readonly members?: Readonly<Record<string, string>>;
      readonly cause?: unknown;
    } = {},
  ) {
    super(detail, { cause: extra.cause });
  }
}
