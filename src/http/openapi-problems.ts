import { problemBody, PROBLEMS } from '../contract/problems.js';
import { OncepayError, type ErrorCode } from '../domain/errors.js';
import type { RouteDocumentation } from './openapi-route.js';

const REQUEST_ID = '019b3c5e-7a10-7000-8000-00000000000a';
const PAYMENT_ID = '019b3c5e-7a10-7000-8000-000000000001';
const KEY_URL = '/idempotency-keys/3f1c8a52-8a0e-4a5c-9d0a-0f6f1f0c9b11';

/** What each problem may look like: its detail and what else it carries. Closed, so that no code lacks one. */
const EXAMPLES: Readonly<Record<ErrorCode, readonly [detail: string, extra?: OncepayError['extra']]>> = {
  idempotency_key_missing: ['Send an Idempotency-Key header.'],
  idempotency_key_invalid: ['The Idempotency-Key header is not valid: it has two lines.'],
  validation_failed: [
    'The request is not valid: /amount must be greater than zero.',
    { errors: [{ path: '/amount', message: 'must be greater than zero' }] },
  ],
  malformed_body: ['The body is not valid JSON: the member "amount" stands twice.'],
  card_number_rejected: ['/payment_method looks like a card number. Send a token of the provider.'],
  unauthenticated: ['The API key is unknown, expired or revoked.'],
  forbidden: ['This needs the scope payments:write, which the client does not have.'],
  not_found: ['There is no such payment.'],
  method_not_allowed: ['PUT is not possible here.'],
  request_timeout: ['The whole request did not arrive in time.'],
  idempotency_key_reused: [
    'This key was first sent with another request.',
    { members: { payment_id: PAYMENT_ID, status_url: KEY_URL } },
  ],
  idempotency_key_in_progress: [
    'The first request with this key is still running.',
    { members: { status_url: KEY_URL } },
  ],
  external_payment_id_taken: [
    'A payment with this external_payment_id exists, with another amount.',
    { members: { payment_id: PAYMENT_ID } },
  ],
  operation_in_progress: ['A capture of this payment is under way.', { members: { payment_id: PAYMENT_ID } }],
  invalid_payment_state: ['A payment that has failed can’t be captured.', { members: { payment_status: 'failed' } }],
  amount_exceeds_remaining: ['Only 5.00 EUR are left to refund.', { members: { remaining: '5.00' } }],
  body_too_large: ['The body is larger than the 65536 bytes that are accepted.'],
  uri_too_long: ['A part of the path is longer than accepted.'],
  unsupported_media_type: ['Send Content-Type: application/json, in UTF-8.'],
  rate_limited: ['This client sends too many requests.'],
  headers_too_large: ['All headers together are larger than accepted.'],
  internal: ['An unexpected error. Retry with the same Idempotency-Key.'],
  unavailable: ['The service can’t reach its database for the moment. Try again.'],
};

/** One example per code, for `components.examples`. */
export function problemExample(code: ErrorCode): Record<string, unknown> {
  const [detail, extra] = EXAMPLES[code];
  const value = problemBody(new OncepayError(code, detail, extra), REQUEST_ID);
  return { summary: PROBLEMS[code].title, value };
}

const WITH_A_SCOPE: readonly ErrorCode[] = ['validation_failed', 'unauthenticated', 'forbidden', 'rate_limited'];
const WITH_A_BODY: readonly ErrorCode[] = [
  'validation_failed',
  'malformed_body',
  'body_too_large',
  'unsupported_media_type',
];
const WITH_A_KEY: readonly ErrorCode[] = [
  'idempotency_key_missing',
  'idempotency_key_invalid',
  'idempotency_key_reused',
  'idempotency_key_in_progress',
];
const WITH_A_PATH_PARAMETER: readonly ErrorCode[] = ['validation_failed', 'uri_too_long'];

/** Every code that a route may answer with, by status: its own and those of what stands before it. */
export function problemsByStatus(route: RouteDocumentation, has_scope: boolean): Map<number, ErrorCode[]> {
  const codes = new Set<ErrorCode>([
    ...(has_scope ? WITH_A_SCOPE : []),
    ...(route.body === undefined ? [] : WITH_A_BODY),
    ...(route.idempotent === true ? WITH_A_KEY : []),
    ...(route.path_parameters === undefined ? [] : WITH_A_PATH_PARAMETER),
    ...(route.problems ?? []),
    'internal',
    'unavailable',
  ]);
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of codes) {
    const { status } = PROBLEMS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return byStatus;
}
