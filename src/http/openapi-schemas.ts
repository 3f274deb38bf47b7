import { z } from 'zod';

/** A JSON Schema as it stands in the document. */
export type JsonSchema = Record<string, unknown>;

/** In which direction a schema is used: answers leave room for members to come, requests don't. */
export type SchemaRole = 'request' | 'answer';

/**
 * The schemas of a document, each once under `components`, from the zod schemas of the contract. Schemas with an id
 * become references to it, others stand where they are used.
 */
export class SchemaComponents {
  private readonly components = new Map<string, JsonSchema>();

  /** @returns a reference, or the schema itself where it has no id. */
  use(schema: z.ZodType, role: SchemaRole): JsonSchema {
    const { $schema: _, $defs, ...root } = z.toJSONSchema(schema, { io: 'input' }) as JsonSchema;
    for (const [id, definition] of Object.entries(($defs ?? {}) as Record<string, JsonSchema>)) {
      this.add(id, tidy(definition, role) as JsonSchema);
    }
    return tidy(root, role) as JsonSchema;
  }

  /** The members of a flat object schema, as parameters need them: name, schema, whether it is required. */
  members(schema: z.ZodObject): { name: string; schema: JsonSchema; required: boolean }[] {
    return Object.entries(schema.shape).map(([name, member]) => ({
      name,
      schema: this.use(member as z.ZodType, 'request'),
      required: !(member as z.ZodType).safeParse(undefined).success,
    }));
  }

  all(): Record<string, JsonSchema> {
    return Object.fromEntries([...this.components].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  private add(id: string, definition: JsonSchema): void {
    const known = this.components.get(id);
    if (known === undefined) this.components.set(id, definition);
    // zod lets the later of two schemas with one id win silently.
    else if (JSON.stringify(known) !== JSON.stringify(definition)) throw new Error(`two schemas have the id ${id}`);
  }
}

function tidy(value: unknown, role: SchemaRole): unknown {
  if (Array.isArray(value)) return value.map((item) => tidy(item, role));
  if (typeof value !== 'object' || value === null) return value;
  const result: JsonSchema = {};
  for (const [name, member] of Object.entries(value)) {
    // A member that comes later must not break those who check answers against today's document.
    if (name === 'additionalProperties' && member === false && role === 'answer') continue;
    // zod's bounds of an integer without bounds.
    if ((name === 'minimum' || name === 'maximum') && Math.abs(Number(member)) === Number.MAX_SAFE_INTEGER) continue;
    result[name] = name === '$ref' ? String(member).replace('#/$defs/', '#/components/schemas/') : tidy(member, role);
  }
  return typed(result);
}

/** Query parameters are texts for zod; where the document calls one an integer, its examples are integers too. */
function typed(schema: JsonSchema): JsonSchema {
  if (schema.type !== 'integer' || !Array.isArray(schema.examples)) return schema;
  return { ...schema, examples: schema.examples.map(Number) };
}
