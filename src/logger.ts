import { pino } from 'pino';
import type { DestinationStream, Logger } from 'pino';

export type { Logger } from 'pino';

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Members that hold a secret wherever they stand; what is in them is never written. */
const SECRET_MEMBERS = ['authorization', 'api_key', 'bootstrap_api_key', 'secret_key', 'webhook_secrets', 'password'];
const REDACTED_PATHS = SECRET_MEMBERS.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]);

/**
 * Secrets inside longer texts (messages and stacks of errors, addresses): our API keys, webhook secrets, Stripe keys,
 * bearer tokens, passwords in connection strings.
 */
const SECRETS =
  /oncepay_sk_[\w-]+|whsec_[\w+/=-]+|[rs]k_(?:live|test)_\w+|(?<=Bearer )[\w.~+/=-]+|(?<=:\/\/[^\s/:@"]*:)[^\s/@"]+(?=@)/g;

/**
 * The service's logger: one JSON object per line, times in RFC 3339, without secrets. Without a `stream` it writes to
 * standard output, unblocking and in order; what is still in memory is written when the process exits by itself.
 */
export function createLogger(level: LogLevel, stream?: DestinationStream): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: REDACTED_PATHS, censor: '[secret]' },
      hooks: { streamWrite: withoutSecrets },
    },
    stream ?? pino.destination({ dest: 1, sync: false }),
  );
}

function withoutSecrets(line: string): string {
  return line.replace(SECRETS, '[secret]');
}
