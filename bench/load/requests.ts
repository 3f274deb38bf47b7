import { randomUUID } from 'node:crypto';
import type { Answer } from './connection.js';
import type { LoadSpec } from './spec.js';

/** Makes requests as text and judges their answers. `null` is a good answer, otherwise what was wrong with it. */
export interface Requests {
  next(): string;
  judge(answer: Answer): string | null;
}

function chargeText(spec: LoadSpec, key: string, order: string): string {
  const body = `{"amount":"100.00","currency":"RUB","customer_id":"42","external_payment_id":"order-${order}"}`;
  const authorization = spec.api_key === null ? '' : `Authorization: Bearer ${spec.api_key}\r\n`;
  return (
    `POST /payments HTTP/1.1\r\nHost: ${new URL(spec.url).host}\r\n${authorization}Idempotency-Key: ${key}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
  );
}

/** Every request a new charge. The parts that stay the same are put together once. */
export function newCharges(spec: LoadSpec): Requests {
  const [before, between, after] = chargeText(spec, '<uuid>'.padEnd(36), '<uuid>'.padEnd(36)).split(
    '<uuid>'.padEnd(36),
  );
  return {
    next: () => `${before}${randomUUID()}${between}${randomUUID()}${after}`,
    judge: (answer) => (answer.status === 201 ? null : `status ${answer.status}`),
  };
}

/** The given charges again, each with its own key, in random order. */
export function replays(texts: readonly string[]): Requests {
  return {
    next: () => texts[Math.floor(Math.random() * texts.length)] ?? '',
    judge: (answer) => {
      if (answer.status !== 201) return `status ${answer.status}`;
      return answer.replayed ? null : 'not a replay';
    },
  };
}

export function gets(spec: LoadSpec, path: string): Requests {
  const authorization = spec.api_key === null ? '' : `Authorization: Bearer ${spec.api_key}\r\n`;
  const text = `GET ${path} HTTP/1.1\r\nHost: ${new URL(spec.url).host}\r\n${authorization}\r\n`;
  return { next: () => text, judge: (answer) => (answer.status === 200 ? null : `status ${answer.status}`) };
}
