import { z } from 'zod';
import { amount, PROVIDER_NAME, text, textLimits, wrongType } from './fields.js';
import { textProblem, type TextRule } from './text.js';

/**
 * What callers may send. The shapes are checked by these schemas and described to callers from them (OpenAPI); what
 * needs more than one field or the deployment's configuration is checked by `requests.ts`.
 */

const MAX_METADATA_PAIRS = 50;
const METADATA_NAME: TextRule = { min: 1, max: 40 };
const METADATA_VALUE: TextRule = { min: 0, max: 500 };
const MAX_URL_LENGTH = 2048;

/** RFC 3986 is ASCII; WHATWG's reader would silently drop spaces, tabs and line ends. */
const HTTP_URL = /^https?:\/\/[\x21-\x7e]+$/i;

const Metadata = z
  .record(
    z.string().meta(textLimits(METADATA_NAME)),
    z.string({ error: wrongType('a string') }).meta(textLimits(METADATA_VALUE)),
    { error: wrongType('an object of strings') },
  )
  .check((context) => {
    const pairs = Object.entries(context.value);
    const refuse = (message: string, path: PropertyKey[] = []): void => {
      context.issues.push({ code: 'custom', message, input: context.value, path });
    };
    if (pairs.length > MAX_METADATA_PAIRS) {
      refuse(`must have at most ${MAX_METADATA_PAIRS} members`);
      return;
    }
    for (const [key, value] of pairs) {
      const keyProblem = textProblem(key, METADATA_NAME);
      if (keyProblem !== null) refuse(`has a name that ${keyProblem}`, [key]);
      const valueProblem = textProblem(value, METADATA_VALUE);
      if (valueProblem !== null) refuse(valueProblem, [key]);
    }
  })
  .meta({
    description: `At most ${MAX_METADATA_PAIRS} pairs of strings, kept with the payment and shown with it. Names have 1 to ${METADATA_NAME.max} characters, values at most ${METADATA_VALUE.max}. Never a card number.`,
    examples: [{ cart: 'c-118' }],
    maxProperties: MAX_METADATA_PAIRS,
  });

const ReturnUrl = z
  .string({ error: wrongType('a string') })
  .check((context) => {
    const url = context.value;
    if (url.length <= MAX_URL_LENGTH && HTTP_URL.test(url) && URL.canParse(url)) return;
    const message = `must be an absolute http or https URL of at most ${MAX_URL_LENGTH} ASCII characters (others percent-encoded)`;
    context.issues.push({ code: 'custom', message, input: url });
  })
  .meta({
    format: 'uri',
    maxLength: MAX_URL_LENGTH,
    description:
      'Where the customer comes back to after an action at the provider (`next_action`). An http or https URL.',
    examples: ['https://shop.example/orders/1001'],
  });

const body = { error: wrongType('a JSON object') };

export const ChargeRequest = z
  .strictObject(
    {
      amount: amount(
        "What to charge: a decimal string with at most the currency's digits, greater than zero, at most 2^53 - 1 minor units.",
      ),
      currency: z
        .string({ error: wrongType('a string') })
        .regex(/^[A-Z]{3}$/, { error: 'must be an ISO 4217 code of three upper-case letters, such as "EUR"' })
        .meta({ description: 'ISO 4217 code, upper case.', examples: ['EUR'] }),
      customer_id: text(
        { min: 1, max: 64 },
        { description: 'Who pays, in your own words.', examples: ['customer-42'] },
      ),
      external_payment_id: text(
        { min: 1, max: 128, printable_ascii: true },
        {
          description:
            "The payment's name in your world: an order or invoice number. It is charged once, whatever the key. Printable ASCII, no space at either end.",
          examples: ['order-1001'],
        },
      ),
      provider: z
        .string({ error: wrongType('a string') })
        .regex(PROVIDER_NAME, { error: 'must be the name of a provider' })
        .meta({
          description: "Which provider moves the money; without it, the deployment's first.",
          examples: ['sandbox'],
        })
        .optional(),
      payment_method: text(
        { min: 1, max: 255, printable_ascii: true },
        {
          description:
            'A token that the provider has made for what the customer pays with. Never a card number. Printable ASCII, no space at either end.',
          examples: ['pm_success'],
        },
      ).optional(),
      capture: z
        .enum(['automatic', 'manual'], { error: wrongType('"automatic" or "manual"') })
        .meta({
          description: '`manual` only authorizes; capture or cancel follows. Without it: `automatic`.',
          examples: ['automatic'],
        })
        .optional(),
      order_id: text(
        { min: 1, max: 128 },
        { description: 'The order that is paid, in your own words.', examples: ['1001'] },
      ).optional(),
      description: text(
        { min: 0, max: 500 },
        { description: 'For people. Never a card number.', examples: ['Two books'] },
      ).optional(),
      metadata: Metadata.optional(),
      return_url: ReturnUrl.optional(),
    },
    body,
  )
  .meta({ id: 'ChargeRequest', description: 'A charge, or with `capture: manual` an authorization.' });

export const CaptureRequest = z
  .strictObject(
    { amount: amount("What to capture, in the payment's currency; without it, all that is authorized.").optional() },
    body,
  )
  .meta({
    id: 'CaptureRequest',
    description: 'A capture of an authorized payment. No body at all means the same as `{}`.',
  });

export const CancelRequest = z
  .strictObject({}, body)
  .meta({ id: 'CancelRequest', description: 'A cancel has no members. No body at all means the same as `{}`.' });

export const RefundRequest = z
  .strictObject(
    {
      amount: amount("What to give back, in the payment's currency; without it, all that is left.").optional(),
      reason: text(
        { min: 0, max: 500 },
        { description: 'Why, for people. Never a card number.', examples: ['Book came damaged'] },
      ).optional(),
    },
    body,
  )
  .meta({
    id: 'RefundRequest',
    description: 'A refund of a captured payment; an empty object gives back all that is left.',
  });
