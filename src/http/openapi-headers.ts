import type { AnswerHeader } from './openapi-route.js';

/** Headers of answers, each described once. Names that begin alike are told on every answer or by status. */
export const HEADERS: Readonly<Record<string, Record<string, unknown>>> = {
  'Request-Id': {
    description: 'The id of this request (UUID v7), also in our logs. Give it to the operator when something is odd.',
    schema: { type: 'string', format: 'uuid', examples: ['019b3c5e-7a10-7000-8000-00000000000a'] },
  },
  Location: {
    description: 'The path of what was made.',
    schema: { type: 'string', format: 'uri-reference', examples: ['/payments/019b3c5e-7a10-7000-8000-000000000001'] },
  },
  'Idempotency-Key-Expires': {
    description:
      'Until when the answer to this key is stored and replayed (HTTP date). After it the operation still stands: the same command finds it.',
    schema: { type: 'string', examples: ['Tue, 03 Feb 2026 10:00:00 GMT'] },
  },
  'Idempotent-Replayed': {
    description: '`true`: this is the stored answer of an earlier request with the same key. Absent otherwise.',
    schema: { type: 'string', enum: ['true'] },
  },
  Link: {
    description: 'Where the key’s state can be read, with `rel="status"`.',
    schema: { type: 'string', examples: ['</idempotency-keys/3f1c8a52-8a0e-4a5c-9d0a-0f6f1f0c9b11>; rel="status"'] },
  },
  'Retry-After': {
    description: 'How many seconds to wait before sending the same request with the same key again.',
    schema: { type: 'integer', minimum: 1, examples: [1] },
  },
  'WWW-Authenticate': {
    description: 'How to authenticate.',
    schema: { type: 'string', examples: ['Bearer realm="oncepay"'] },
  },
  'RateLimit-Limit': {
    description: 'Requests that this client may send per second. The three are absent where no limit is set.',
    schema: { type: 'integer', minimum: 0, examples: [500] },
  },
  'RateLimit-Remaining': {
    description: 'How many of them are left.',
    schema: { type: 'integer', minimum: 0, examples: [499] },
  },
  'RateLimit-Reset': {
    description: 'Seconds until the limit starts anew.',
    schema: { type: 'integer', minimum: 0, examples: [1] },
  },
};

const RATE_LIMIT_HEADERS = ['RateLimit-Limit', 'RateLimit-Remaining', 'RateLimit-Reset'];

/** References to the headers of one answer. */
export function headersOf(
  status: number,
  options: { readonly limited: boolean; readonly retry: boolean; readonly own?: readonly AnswerHeader[] },
): Record<string, { $ref: string }> {
  const names = ['Request-Id', ...(options.own ?? [])];
  if (options.limited && status !== 401) names.push(...RATE_LIMIT_HEADERS);
  if (options.retry) names.push('Retry-After');
  if (status === 401) names.push('WWW-Authenticate');
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

/** Headers of requests, for the routes that move money. */
export const PARAMETERS: Readonly<Record<string, Record<string, unknown>>> = {
  IdempotencyKey: {
    name: 'Idempotency-Key',
    in: 'header',
    required: true,
    description:
      'Once per intent, kept over retries: make it before the first sending (a UUID, say), store it with the order, and send the same key with every retry of that request. A new intent is a new key; a retry never is. 1 to 255 printable ASCII characters, no space at either end; bare or in a pair of quotes.',
    schema: { type: 'string', minLength: 1, maxLength: 255, pattern: '^[\\x21-\\x7e]([\\x20-\\x7e]*[\\x21-\\x7e])?$' },
    example: '3f1c8a52-8a0e-4a5c-9d0a-0f6f1f0c9b11',
  },
  Prefer: {
    name: 'Prefer',
    in: 'header',
    required: false,
    description:
      'With `wait=N` (N ≤ 30) a request that meets its own first sending, still running, waits up to N seconds for the answer and replays it, instead of 409 `idempotency_key_in_progress`.',
    schema: { type: 'string', examples: ['wait=10'] },
  },
};
