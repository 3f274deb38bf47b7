import { Kafka, type LogEntry, logLevel } from 'kafkajs';
import type { Logger } from '../logger.js';

/**
 * Time limits of the way to the broker. One send with all its tries stays below the relay's lease (relay.ts); a broker
 * that is away is told within seconds, and whoever needs it tries again with a backoff of its own.
 */
export const KAFKA_LIMITS = {
  connect_ms: 3_000,
  request_ms: 5_000,
  /** Between kafkajs' own tries. */
  retry_ms: { initial: 100, max: 1_000 },
  retries: 3,
  /** A member that is silent for so long is taken for dead, and its partitions go to others. */
  session_ms: 30_000,
  heartbeat_ms: 1_000,
  rebalance_ms: 60_000,
} as const;

/** A client of the brokers; connects at the first use. `name` shows in the broker's logs. */
export function createKafka(brokers: readonly string[], name: string, logger: Logger): Kafka {
  return new Kafka({
    clientId: name,
    brokers: [...brokers],
    connectionTimeout: KAFKA_LIMITS.connect_ms,
    requestTimeout: KAFKA_LIMITS.request_ms,
    retry: {
      retries: KAFKA_LIMITS.retries,
      initialRetryTime: KAFKA_LIMITS.retry_ms.initial,
      maxRetryTime: KAFKA_LIMITS.retry_ms.max,
    },
    logLevel: logLevel.WARN,
    logCreator: () => (entry) => writeLog(logger, entry),
  });
}

/**
 * kafkajs calls each broken connection and each rebalance an error. Here they are what happens when brokers restart:
 * whoever was disturbed tells it once, as a warning of its own, so that these lines are for debugging.
 */
function writeLog(logger: Logger, entry: LogEntry): void {
  const { message, timestamp: _timestamp, logger: _logger, stack: _stack, ...details } = entry.log;
  logger.debug({ kafka: details, part: entry.namespace }, message);
}

/** The types of an error and of its causes, as kafkajs and the broker name them: `MESSAGE_TOO_LARGE`, … */
export function kafkaErrorTypes(error: unknown): string[] {
  const types: string[] = [];
  for (let at: unknown = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth += 1) {
    types.push(at.name);
    if ('type' in at && typeof at.type === 'string') types.push(at.type);
  }
  return types;
}

/** What the broker says of a message that it will never take, whatever else happens. */
const REFUSALS = new Set(['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE', 'INVALID_RECORD', 'INVALID_TIMESTAMP']);

/** Whether an error of a send is about what was sent, rather than about the broker or the way to it. */
export function isRefusal(error: unknown): boolean {
  return kafkaErrorTypes(error).some((type) => REFUSALS.has(type));
}
