import type { IncomingMessage } from 'node:http';
import { Refusal } from './errors.js';

/** @throws Refusal where the body is larger than allowed. */
export async function readBody(req: IncomingMessage, limit_bytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of req as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > limit_bytes) throw new Refusal(413, 'body_too_large', `the body is larger than ${limit_bytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** The members of a JSON object. No body at all is an empty one. */
export class Fields {
  private constructor(private readonly members: Readonly<Record<string, unknown>>) {}

  /** @throws Refusal where the body is no JSON object or has a member that is not in `known`. */
  static parse(body: Buffer, known: readonly string[]): Fields {
    const members = parseObject(body);
    const unknown = Object.keys(members).find((name) => !known.includes(name));
    if (unknown !== undefined) throw invalid(`${unknown} is not known here; known are ${known.join(', ')}`);
    return new Fields(members);
  }

  string(name: string, longest = 255): string {
    const value = this.optionalString(name, longest);
    if (value === null) throw invalid(`${name} is missing`);
    return value;
  }

  optionalString(name: string, longest = 255): string | null {
    const value = this.members[name] ?? null;
    if (value === null) return null;
    if (typeof value !== 'string' || value === '' || value.length > longest) {
      throw invalid(`${name} must be a text of 1 to ${longest} characters`);
    }
    return value;
  }

  oneOf<T extends string>(name: string, words: readonly T[], otherwise?: T): T {
    const value = this.optionalString(name) ?? otherwise;
    const word = words.find((known) => known === value);
    if (word === undefined) throw invalid(`${name} must be one of ${words.join(', ')}`);
    return word;
  }

  /** A whole number of minor units, above zero, that a JSON number can hold exactly. */
  optionalAmount(name: string): number | null {
    const value = this.members[name] ?? null;
    if (value === null) return null;
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value <= 0) {
      throw invalid(`${name} must be a whole number above zero, of minor units`);
    }
    return value;
  }

  optionalInteger(name: string, lowest: number, highest: number): number | null {
    const value = this.members[name] ?? null;
    if (value === null) return null;
    if (typeof value !== 'number' || !Number.isInteger(value) || value < lowest || value > highest) {
      throw invalid(`${name} must be a whole number from ${lowest} to ${highest}`);
    }
    return value;
  }

  /** Flat pairs of texts; none where it is left out. */
  pairs(name: string): Readonly<Record<string, string>> {
    const value = this.members[name] ?? {};
    const isFlat = isObject(value) && Object.values(value).every((text) => typeof text === 'string');
    if (!isFlat || Object.keys(value).length > 50) throw invalid(`${name} must be up to 50 pairs of texts`);
    return value as Readonly<Record<string, string>>;
  }

  any(name: string): unknown {
    return this.members[name];
  }
}

/** The one value of a query parameter. @throws Refusal where it is missing or there are several. */
export function oneParameter(query: URLSearchParams, name: string): string {
  const values = query.getAll(name);
  const [value] = values;
  if (values.length !== 1 || !value) throw invalid(`the query needs one ${name}`);
  return value;
}

/** A text that is the same for the same JSON, whatever the order of members. */
export function canonicalText(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalText).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${JSON.stringify(name)}:${canonicalText(value[name])}`).join(',')}}`;
}

export function parseObject(body: Buffer): Record<string, unknown> {
  if (body.length === 0) return {};
  let value: unknown;
  try {
    value = JSON.parse(body.toString('utf8'));
  } catch {
    throw invalid('the body is no JSON');
  }
  if (!isObject(value)) throw invalid('the body must be a JSON object');
  return value;
}

export function invalid(message: string): Refusal {
  return new Refusal(400, 'invalid_request', message);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
