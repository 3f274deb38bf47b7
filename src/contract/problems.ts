import type { ErrorCode, FieldError, OncepayError } from '../domain/errors.js';

export interface ProblemDefinition {
  readonly status: number;
  /** The same for every occurrence; the problem's `detail` says what was wrong this time. */
  readonly title: string;
  /** What it means, for people. */
  readonly meaning: string;
  /** What a caller does next. */
  readonly advice: string;
  /** Whether sending again helps: as it was, only after a correction, or not at all. */
  readonly retry: 'yes' | 'after_correction' | 'no';
  /** With which idempotency key. `none`: keys have nothing to do with it. */
  readonly retry_key: 'same' | 'new' | 'none';
}

/** Every code that a caller can be answered with: the one place where codes get their HTTP status and their words. */
export const PROBLEMS: Readonly<Record<ErrorCode, ProblemDefinition>> = {
  idempotency_key_missing: {
    status: 400,
    title: 'Idempotency-Key is missing',
    meaning: 'A request that moves money came without an Idempotency-Key header. Nothing has happened.',
    advice:
      'Make one key per intent (a UUID, say) before the first sending, store it with the order, and send it with every retry of that request.',
    retry: 'after_correction',
    retry_key: 'new',
  },
  idempotency_key_invalid: {
    status: 400,
    title: 'Idempotency-Key is not valid',
    meaning:
      'A key is one header line of 1 to 255 printable ASCII characters without a space at either end, bare or in a pair of quotes. Nothing has happened.',
    advice: 'Send exactly one valid key. A UUID is always fine.',
    retry: 'after_correction',
    retry_key: 'new',
  },
  validation_failed: {
    status: 400,
    title: 'The request is not valid',
    meaning:
      'A field, a query parameter or a header is missing, unknown or wrong; `errors` lists where and why. Nothing has happened.',
    advice: 'Correct what `errors` names. The idempotency key has not been used up: the corrected request may keep it.',
    retry: 'after_correction',
    retry_key: 'same',
  },
  malformed_body: {
    status: 400,
    title: 'The body is not acceptable JSON',
    meaning:
      'The body is no valid UTF-8 or no valid JSON, has a member name twice in one object, or is nested too deeply. Nothing has happened.',
    advice: 'Send JSON as a JSON library writes it. The idempotency key has not been used up.',
    retry: 'after_correction',
    retry_key: 'same',
  },
  card_number_rejected: {
    status: 400,
    title: 'Card numbers are not accepted',
    meaning:
      'A field holds what looks like a card number. Oncepay takes only tokens that the payment provider has made, so that no card number is ever stored or logged here. Nothing has happened.',
    advice: "Send the provider's token as `payment_method`, and leave card numbers out of every text.",
    retry: 'after_correction',
    retry_key: 'same',
  },
  unauthenticated: {
    status: 401,
    title: 'Authentication is required',
    meaning:
      'The API key is missing, unknown, expired or revoked. Nothing has happened, and no idempotency key was looked at.',
    advice:
      'Send `Authorization: Bearer <api key>` with a valid key of your client. Another API key of the same client may send the same idempotency key again.',
    retry: 'after_correction',
    retry_key: 'same',
  },
  forbidden: {
    status: 403,
    title: 'The API key does not allow this',
    meaning: 'The client is known, but lacks the scope that this route needs. Nothing has happened.',
    advice: 'Ask the operator of this service for the scope that `detail` names.',
    retry: 'after_correction',
    retry_key: 'same',
  },
  not_found: {
    status: 404,
    title: 'Not found',
    meaning: 'There is nothing at this address, or it belongs to another client. Nothing has happened.',
    advice:
      'Check the id and the path. A payment whose id you do not have is found by `GET /payments?external_payment_id=…`.',
    retry: 'no',
    retry_key: 'none',
  },
  method_not_allowed: {
    status: 405,
    title: 'The method is not allowed here',
    meaning: 'The path exists, but not with this method. Nothing has happened.',
    advice: 'Use one of the methods that the `Allow` header lists.',
    retry: 'after_correction',
    retry_key: 'none',
  },
  request_timeout: {
    status: 408,
    title: 'The request took too long to arrive',
    meaning: 'The whole request did not arrive in time. Nothing has happened.',
    advice: 'Send it again with the same idempotency key.',
    retry: 'yes',
    retry_key: 'same',
  },
  idempotency_key_reused: {
    status: 409,
    title: 'This Idempotency-Key belongs to another request',
    meaning:
      'The key was used before with another body, for another payment or for another kind of operation. This request has not run; what the key stands for is unchanged.',
    advice:
      'If this is a new intent, give it a new key. If it was meant as a retry, send exactly what was sent first. `GET /idempotency-keys/{key}` shows what the key stands for.',
    retry: 'after_correction',
    retry_key: 'new',
  },
  idempotency_key_in_progress: {
    status: 409,
    title: 'The first request with this Idempotency-Key is still running',
    meaning: 'The same request came before and has no answer yet. Nothing runs twice.',
    advice:
      'Send the same request with the same key again after `Retry-After` seconds, or with `Prefer: wait=10`, which waits for the answer. Never switch to a new key.',
    retry: 'yes',
    retry_key: 'same',
  },
  external_payment_id_taken: {
    status: 409,
    title: 'This external_payment_id is taken',
    meaning:
      'A payment with this external_payment_id exists, and this request is not the same charge. Nothing has been charged. `payment_id` is there if the payment is yours.',
    advice:
      'Look at the existing payment: it may be the one that you want. A different purchase needs an external_payment_id of its own and a new key.',
    retry: 'after_correction',
    retry_key: 'new',
  },
  operation_in_progress: {
    status: 409,
    title: 'Another operation on this payment is under way',
    meaning:
      'A charge, capture or cancel of this payment has no outcome yet, and a second one must not run beside it. This request has not run.',
    advice:
      'Send it again a little later; the idempotency key has not been used up. `GET /payments/{id}` shows where the payment stands.',
    retry: 'yes',
    retry_key: 'same',
  },
  invalid_payment_state: {
    status: 409,
    title: "The payment's state does not allow this",
    meaning:
      'The operation does not fit the payment as it is (`payment_status`): say, a capture of what is already captured. Nothing has moved.',
    advice:
      'Read the payment and decide again. If it allows the operation later, send that with a new key: this answer stays with this one.',
    retry: 'no',
    retry_key: 'new',
  },
  amount_exceeds_remaining: {
    status: 409,
    title: 'The amount is more than what is left',
    meaning:
      "A capture can't pass what was authorized; refunds, pending ones included, can't pass what was captured. `remaining` says what is left. Nothing has moved.",
    advice: 'Send at most what `remaining` says, with a new key.',
    retry: 'after_correction',
    retry_key: 'new',
  },
  body_too_large: {
    status: 413,
    title: 'The body is too large',
    meaning: 'The body is larger than this route accepts. Nothing has happened.',
    advice: 'Send less; `description` and `metadata` have limits of their own.',
    retry: 'after_correction',
    retry_key: 'same',
  },
  uri_too_long: {
    status: 414,
    title: 'The address is too long',
    meaning: 'The path or one of its parts is longer than accepted. Nothing has happened.',
    advice: 'Check the ids in the path.',
    retry: 'after_correction',
    retry_key: 'none',
  },
  unsupported_media_type: {
    status: 415,
    title: 'The content type is not supported',
    meaning: 'Bodies are `application/json` in UTF-8, without a content encoding. Nothing has happened.',
    advice:
      'Send `Content-Type: application/json` and plain, uncompressed JSON. The idempotency key has not been used up.',
    retry: 'after_correction',
    retry_key: 'same',
  },
  rate_limited: {
    status: 429,
    title: 'Too many requests',
    meaning: 'The limit of requests is used up for now. Nothing has happened.',
    advice: 'Wait for `Retry-After` seconds and send the same request with the same key.',
    retry: 'yes',
    retry_key: 'same',
  },
  headers_too_large: {
    status: 431,
    title: 'The headers are too large',
    meaning: 'All headers together are larger than accepted. Nothing has happened.',
    advice: 'Send fewer or shorter headers.',
    retry: 'after_correction',
    retry_key: 'same',
  },
  internal: {
    status: 500,
    title: 'Something went wrong on our side',
    meaning: 'An unexpected error. Whether money has moved is not known from this answer.',
    advice:
      'Send the same request with the same key: it resumes where it broke off and never charges twice. If it goes on failing, give the `request_id` to the operator.',
    retry: 'yes',
    retry_key: 'same',
  },
  unavailable: {
    status: 503,
    title: 'The service is not available for the moment',
    meaning:
      "The service can't reach its database, is overloaded, or is shutting down; it does not run without its guards.",
    advice: 'Wait for `Retry-After` seconds and send the same request with the same key.',
    retry: 'yes',
    retry_key: 'same',
  },
};

/** An RFC 9457 problem, with our members after the standard ones. */
export interface ProblemBody {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly instance?: string;
  readonly code: ErrorCode;
  readonly request_id: string;
  readonly errors?: readonly FieldError[];
  readonly [member: string]: unknown;
}

/**
 * The body of an `application/problem+json` answer.
 * @param instance the path of the resource or request it is about, without its query
 */
export function problemBody(error: OncepayError, request_id: string, instance?: string): ProblemBody {
  const { status, title } = PROBLEMS[error.code];
  const { errors, members } = error.extra;
  return {
    type: `/problems/${error.code}`,
    title,
    status,
    detail: error.message,
    ...(instance === undefined ? {} : { instance }),
    code: error.code,
    request_id,
    ...(errors === undefined ? {} : { errors }),
    ...members,
  };
}
