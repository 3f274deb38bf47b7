import type { z } from 'zod';
import { type FieldError, OncepayError } from '../domain/errors.js';
import { jsonPointer } from './text.js';

/** A request with a thousand unknown members is told about the first ones. */
const MAX_ERRORS = 20;

/** `validation_failed`: the detail tells the first error in a sentence, `errors` has them all (up to 20). */
export function validationFailed(errors: readonly FieldError[]): OncepayError {
  const [first] = errors;
  const place = first === undefined ? 'The request' : first.path === '' ? 'The body' : first.path;
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more, see errors)` : '';
  const detail = `${place} ${first?.message ?? 'is not valid'}${more}.`;
  return new OncepayError('validation_failed', detail, { errors: errors.slice(0, MAX_ERRORS) });
}

/** What zod found in a body, with JSON Pointers. */
export function bodyErrors(error: z.ZodError, body: unknown): FieldError[] {
  if (body === undefined) return [{ path: '', message: 'is missing; a JSON object is required' }];
  return fieldErrors(error, '', 'is not a known member');
}

/** What zod found in the query parameters, as `query/<name>`. */
export function queryErrors(error: z.ZodError): FieldError[] {
  return fieldErrors(error, 'query', 'is not a known query parameter');
}

function fieldErrors(error: z.ZodError, prefix: string, unknownName: string): FieldError[] {
  return error.issues.flatMap((issue): FieldError[] => {
    const at = (...steps: PropertyKey[]): string => prefix + jsonPointer([...issue.path, ...steps]);
    if (issue.code !== 'unrecognized_keys') return [{ path: at(), message: issue.message }];
    return issue.keys.map((key) => ({ path: at(key), message: unknownName }));
  });
}
