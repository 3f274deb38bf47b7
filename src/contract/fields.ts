import { z } from 'zod';
import { PRINTABLE_ASCII, textProblem, type TextRule } from './text.js';

/** The fields that the schemas are made of. Their messages read on after the field's name: "must be …". */

/** Without a currency: 1–15 digits, at most as many decimals as the currency with most of them has. */
const AMOUNT_TEXT = /^\d{1,15}(?:\.\d{1,4})?$/;
export const PROVIDER_NAME = /^[a-z][a-z0-9_-]{0,63}$/;

export interface FieldDescription {
  readonly description: string;
  readonly examples: string[];
}

/** The message for a value of the wrong type, or for none. */
export function wrongType(expected: string) {
  return ({ input }: { readonly input?: unknown }): string => {
    if (input === undefined) return 'is required';
    if (input === null) return `must be ${expected}; leave an optional member out instead of sending null`;
    return `must be ${expected}`;
  };
}

/** A text: its length counts characters, and what PostgreSQL or UTF-8 can't hold is refused. */
export function text(rule: TextRule, description: FieldDescription, error = wrongType('a string')) {
  return z
    .string({ error })
    .check((context) => {
      const problem = textProblem(context.value, rule);
      if (problem !== null) context.issues.push({ code: 'custom', message: problem, input: context.value });
    })
    .meta({ ...textLimits(rule), ...description });
}

/** A text's rule in JSON Schema's words. */
export function textLimits(rule: TextRule) {
  const pattern = rule.printable_ascii === true ? PRINTABLE_ASCII.source : '^[^\\u0000]*$';
  return { ...(rule.min > 0 ? { minLength: rule.min } : {}), maxLength: rule.max, pattern };
}

/** An amount whose currency stands elsewhere: `parseAmount` checks the rest. */
export function amount(description: string) {
  return z
    .string({ error: wrongType('a decimal string such as "10.00"') })
    .regex(AMOUNT_TEXT, {
      error: 'must be a decimal string such as "10.00": 1 to 15 digits, then at most the currency\'s decimals',
    })
    .meta({ description, examples: ['10.00'] });
}
