import type { IHeaders, KafkaMessage } from 'kafkajs';
import { parseStrictJson } from '../contract/strict-json.js';
import { OncepayError } from '../domain/errors.js';
import type { StoredEvent } from '../store/outbox.js';
import type { OutgoingMessage } from './publisher.js';

/** An event that came in, by CloudEvents 1.0 (Kafka binding, binary mode). */
export interface CloudEvent {
  readonly id: string;
  readonly type: string;
  readonly source: string;
  readonly time: Date | null;
  readonly traceparent: string | null;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Why a message can't be read; the first of the reasons in a dead letter's headers. */
export type UnreadableReason =
  'null_value' | 'not_a_cloudevent' | 'wrong_ce_id' | 'wrong_ce_type' | 'wrong_content_type' | 'broken_json';

export type Decoded =
  | { readonly ok: true; readonly event: CloudEvent }
  | { readonly ok: false; readonly reason: UnreadableReason; readonly detail: string };

const CONTENT_TYPE = 'application/json';
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const TYPE = /^[A-Za-z][A-Za-z0-9]{0,99}\.v[1-9]\d{0,3}$/;
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;
/** As wide as the largest sequence (int4): CloudEvents wants it to sort as text. */
const SEQUENCE_DIGITS = 10;

/** A row of the outbox as a message: the same at every sending, so that a repeated one is the same event. */
export function encodeEvent(row: StoredEvent, source: string): OutgoingMessage {
  const headers: IHeaders = {
    ce_specversion: '1.0',
    ce_id: row.id,
    ce_type: row.type,
    ce_source: source,
    ce_subject: row.key,
    ce_time: row.created_at.toISOString(),
    ce_sequence: String(row.sequence).padStart(SEQUENCE_DIGITS, '0'),
    'content-type': CONTENT_TYPE,
  };
  if (row.traceparent !== null) {
    headers.ce_traceparent = row.traceparent;
    // Where tracing libraries look.
    headers.traceparent = row.traceparent;
  }
  // No timestamp of ours: the broker's retention goes by it, and a replay of old events would be deleted on arrival.
  return { topic: row.topic, key: row.key, value: row.data, headers };
}

/** Who says it: the installation, whatever instance sends. */
export function eventSource(installation_id: string): string {
  return `urn:oncepay:${encodeURIComponent(installation_id)}`;
}

/** Reads a message. Never throws: what is wrong with it is part of the answer. */
export function decodeEvent(message: Pick<KafkaMessage, 'value' | 'headers'>): Decoded {
  const header = (name: string): string | null => headerText(message.headers, name);
  if (message.value === null) return unreadable('null_value', 'The message has no value.');
  const version = header('ce_specversion');
  const source = header('ce_source');
  if (version === null || !/^1\.\d+$/.test(version) || source === null || source === '') {
    return unreadable('not_a_cloudevent', 'The headers ce_specversion (1.x) and ce_source are required.');
  }
  const id = header('ce_id');
  if (id === null || !UUID.test(id)) return unreadable('wrong_ce_id', 'The header ce_id must be a UUID.');
  const type = header('ce_type');
  if (type === null || !TYPE.test(type)) {
    return unreadable('wrong_ce_type', 'The header ce_type must be a name and a version, as in OrderCreated.v1.');
  }
  const content_type = header('content-type') ?? CONTENT_TYPE;
  if (!/^application\/json(\s*;\s*charset="?utf-8"?)?$/i.test(content_type.trim())) {
    return unreadable('wrong_content_type', 'The content type must be application/json.');
  }
  const parsed = parseObject(message.value);
  if (typeof parsed === 'string') return unreadable('broken_json', parsed);
  const traceparent = header('traceparent') ?? header('ce_traceparent');
  const event = {
    id: id.toLowerCase(),
    type,
    source,
    time: dateOf(header('ce_time')),
    traceparent: traceparent !== null && TRACEPARENT.test(traceparent) ? traceparent : null,
    data: parsed,
  };
  return { ok: true, event };
}

/** The text of a header; null where there is none, more than one, or no valid UTF-8. */
export function headerText(headers: IHeaders | undefined, name: string): string | null {
  const value = headers?.[name];
  if (typeof value === 'string') return value;
  if (!Buffer.isBuffer(value)) return null;
  const text = value.toString('utf8');
  return text.includes('\u{fffd}') ? null : text;
}

function unreadable(reason: UnreadableReason, detail: string): Decoded {
  return { ok: false, reason, detail };
}

function dateOf(text: string | null): Date | null {
  if (text === null) return null;
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** The object in a value, or what is wrong with it. */
function parseObject(value: Buffer): Readonly<Record<string, unknown>> | string {
  let data: unknown;
  try {
    data = parseStrictJson(value);
  } catch (error) {
    if (error instanceof OncepayError) return error.detail;
    throw error;
  }
  if (typeof data !== 'object' || data === null || Array.isArray(data)) return 'The value must be a JSON object.';
  return data as Readonly<Record<string, unknown>>;
}
