import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { SchemaComponents } from '../../src/http/openapi-schemas.js';
import { type Shell, startShell } from '../support/shell.js';

type Json = Record<string, unknown>;

let shell: Shell;
let document: Json & {
  paths: Record<string, Record<string, Json & { operationId: string; responses: Record<string, Json> }>>;
};
beforeAll(async () => {
  shell = await startShell();
  document = (await request(shell.url).get('/docs/json').expect(200)).body;
});
afterAll(() => shell.close());

/** Every object in the document, with where it stands. */
function* objects(value: unknown, path = '#'): Generator<[string, Json]> {
  if (typeof value !== 'object' || value === null) return;
  yield [path, value as Json];
  for (const [name, member] of Object.entries(value)) yield* objects(member, `${path}/${name}`);
}

function resolve(ref: string): unknown {
  return ref
    .slice(2)
    .split('/')
    .reduce<unknown>((node, name) => (node as Json | undefined)?.[name], document);
}

const operations = () =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );

describe('the document', () => {
  it('is OpenAPI 3.1, with references that lead somewhere', () => {
    expect(document.openapi).toBe('3.1.0');
    const broken = [...objects(document)].filter(
      ([, node]) => typeof node.$ref === 'string' && resolve(node.$ref) === undefined,
    );
    expect(broken).toEqual([]);
  });

  it('holds nothing that is unused', () => {
    const text = JSON.stringify(document.paths) + JSON.stringify(document.components);
    for (const [group, members] of Object.entries(document.components as Record<string, Json>)) {
      if (group === 'securitySchemes') continue;
      for (const name of Object.keys(members)) expect(text, name).toContain(`"#/components/${group}/${name}"`);
    }
  });

  it('has every route of the app, and an operation id for each', () => {
    expect(Object.keys(document.paths)).toEqual(
      expect.arrayContaining(['/payments', '/payments/{id}', '/health/ready', '/metrics', '/problems/{code}']),
    );
    const ids = operations().map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('says of each operation with a scope which one, and what it answers without', () => {
    const guarded = operations().filter(({ operation }) => (operation.security as unknown[]).length > 0);
    expect(guarded.length).toBeGreaterThan(0);
    for (const { path, operation } of guarded) {
      expect(operation.security, path).toEqual([
        { ApiKey: [expect.stringMatching(/^(payments:(read|write)|admin)$/)] },
      ]);
      expect(Object.keys(operation.responses), path).toEqual(
        expect.arrayContaining(['400', '401', '403', '429', '500', '503']),
      );
    }
  });

  it('asks for an Idempotency-Key wherever money moves, and says how to use it', () => {
    const money = operations().filter(
      ({ method, operation }) => method === 'post' && (operation.security as Json[]).length > 0,
    );
    expect(money.length).toBeGreaterThan(0);
    for (const { path, operation } of money) {
      expect(operation.parameters, path).toContainEqual({ $ref: '#/components/parameters/IdempotencyKey' });
      expect(Object.keys(operation.responses), path).toContain('409');
    }
    expect(resolve('#/components/parameters/IdempotencyKey')).toMatchObject({
      name: 'Idempotency-Key',
      required: true,
      description: expect.stringMatching(/^Once per intent, kept over retries/),
    });
  });

  it('gives every answer its Request-Id and every problem an example', () => {
    for (const { path, operation } of operations()) {
      for (const [status, answer] of Object.entries(operation.responses)) {
        expect(answer.headers, `${path} ${status}`).toHaveProperty('Request-Id');
        const problem = (answer.content as Json | undefined)?.['application/problem+json'] as Json | undefined;
        if (Number(status) >= 400 && path !== '/health/ready')
          expect(problem?.examples, `${path} ${status}`).toBeDefined();
      }
    }
  });
});

describe('the Swagger UI', () => {
  it('comes from this service alone', async () => {
    const page = await request(shell.url).get('/docs').expect(200);
    expect(page.headers['content-security-policy']).toContain("default-src 'none';script-src 'self'");
    expect(page.headers['content-security-policy']).not.toContain('unsafe');
    expect(page.text).not.toMatch(/https?:/);
    const parts = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path]) => path ?? '');
    expect(parts.length).toBeGreaterThan(3);
    for (const path of parts) await request(shell.url).get(path).expect(200);
  });

  it.each([
    '/docs/static/nothing.js',
    '/docs/static/..%2findex.js',
    '/docs/static/%2e%2e%2f%2e%2e%2fpackage.json',
    '/docs/static/a%00b',
  ])('has nothing at %s', async (path) => {
    const answer = await request(shell.url).get(path).expect(404);
    expect(answer.body.code).toBe('not_found');
  });
});

describe('schemas', () => {
  const One = z.strictObject({ a: z.int(), b: z.string().optional() }).meta({ id: 'One' });

  it('leave room in answers and none in requests', () => {
    const answers = new SchemaComponents();
    expect(answers.use(z.array(One), 'answer')).toEqual({ type: 'array', items: { $ref: '#/components/schemas/One' } });
    expect(answers.all()).toEqual({
      One: { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'string' } }, required: ['a'] },
    });
    const requests = new SchemaComponents();
    requests.use(One, 'request');
    expect(requests.all().One).toHaveProperty('additionalProperties', false);
  });

  it('refuse two schemas with one id', () => {
    const components = new SchemaComponents();
    components.use(One, 'answer');
    expect(() => components.use(z.strictObject({ c: z.int() }).meta({ id: 'One' }), 'answer')).toThrow('One');
  });

  it('give query parameters as they are: what is optional, what is an integer', () => {
    const query = z.strictObject({
      limit: z
        .string()
        .meta({ type: 'integer', examples: ['20'] })
        .optional(),
      q: z.string(),
    });
    expect(new SchemaComponents().members(query)).toEqual([
      { name: 'limit', required: false, schema: { type: 'integer', examples: [20] } },
      { name: 'q', required: true, schema: { type: 'string' } },
    ]);
  });
});
