import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  parseCancelCommand,
  parseCaptureCommand,
  parseChargeCommand,
  parseRefundCommand,
} from '../../../src/contract/requests.js';
import * as contract from '../../../src/contract/schemas.js';

const schemas: [string, z.ZodType][] = Object.entries(contract);
const payment = { id: '019b3c5e-7a10-7000-8000-000000000001', currency: 'EUR' };

/** The example that OpenAPI shows: the first one of each member. */
function exampleOf(schema: z.ZodObject): Record<string, unknown> {
  const members = Object.entries(schema.shape).map(([name, field]): [string, unknown] => {
    const inner = field instanceof z.ZodOptional ? field.unwrap() : field;
    const examples = inner instanceof z.ZodType ? z.globalRegistry.get(inner)?.examples : undefined;
    return [name, Array.isArray(examples) ? examples[0] : undefined];
  });
  return Object.fromEntries(members);
}

describe('the schemas of the contract', () => {
  it('each have an id of their own (a second one would silently take its place)', () => {
    const ids = schemas.map(([, schema]) => z.globalRegistry.get(schema)?.id);
    expect(ids).not.toContain(undefined);
    expect(new Set(ids).size).toBe(schemas.length);
  });

  it.each(schemas)('can be written as JSON Schema that allows no other members: %s', (_name, schema) => {
    for (const io of ['input', 'output'] as const) {
      const json = z.toJSONSchema(schema, { io, target: 'draft-2020-12' });
      const id = z.globalRegistry.get(schema)?.id ?? '';
      expect(json.$defs?.[id] ?? json).toMatchObject({
        type: 'object',
        additionalProperties: false,
        description: expect.any(String),
      });
    }
  });

  it('have examples that are right', () => {
    expect(parseChargeCommand(exampleOf(contract.ChargeRequest), { providers: ['sandbox'] })).toMatchObject({
      amount_minor: 1000n,
    });
    expect(parseCaptureCommand(exampleOf(contract.CaptureRequest), payment)).toMatchObject({ amount_minor: 1000n });
    expect(parseCancelCommand(exampleOf(contract.CancelRequest), payment)).toMatchObject({ kind: 'cancel' });
    expect(parseRefundCommand(exampleOf(contract.RefundRequest), payment)).toMatchObject({ amount_minor: 1000n });
  });

  it('tell the same limits as the checks', () => {
    const json = z.toJSONSchema(contract.ChargeRequest, { io: 'input' });
    expect(json.$defs?.ChargeRequest).toMatchObject({
      required: ['amount', 'currency', 'customer_id', 'external_payment_id'],
      properties: {
        customer_id: { minLength: 1, maxLength: 64 },
        external_payment_id: { minLength: 1, maxLength: 128 },
        payment_method: { minLength: 1, maxLength: 255 },
        description: { maxLength: 500 },
        metadata: {
          maxProperties: 50,
          propertyNames: { minLength: 1, maxLength: 40 },
          additionalProperties: { type: 'string', maxLength: 500 },
        },
        return_url: { format: 'uri', maxLength: 2048 },
      },
    });
    const query = z.toJSONSchema(contract.PaymentListParameters, { io: 'input' });
    expect(query.$defs?.PaymentListParameters?.properties?.limit).toMatchObject({
      type: 'integer',
      minimum: 1,
      maximum: 100,
      default: 20,
    });
  });
});
