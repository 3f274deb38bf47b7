import { pino } from 'pino';
import type { DestinationStream, Logger } from 'pino';

export type { Logger } from 'pino';

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Members that hold a secret wherever they stand, and whatever text or list of texts is in them. */
const SECRET_MEMBERS = 'authorization|api_key|bootstrap_api_key|secret_key|webhook_secrets|password';
const TEXT = '"(?:[^"\\\\]|\\\\.)*"';
/**
 * Secrets in longer texts (messages and stacks of errors, addresses): our API keys, webhook secrets, Stripe keys, bearer
 * tokens, passwords in connection strings.
 */
const SECRET_TEXTS = [
  'oncepay_sk_[\\w-]+',
  'whsec_[\\w+/=-]+',
  '[rs]k_(?:live|test)_\\w+',
  '(?<=Bearer )[\\w.~+/=-]+',
  '(?<=://[^\\s/:@"]*:)[^\\s/@"]+(?=@)',
];
/**
 * All of them, searched for in the finished line. Walking objects before they are written (pino's `redact` with
 * wildcards) took longer than all the rest of logging, and saw no texts.
 */
const SECRETS = new RegExp(`(?<=")(${SECRET_MEMBERS})":(?:${TEXT}|\\[[^\\]]*\\])|${SECRET_TEXTS.join('|')}`, 'g');

/** What no line without a secret has: 0.3 µs instead of 2 for nearly all of them. */
const PERHAPS_SECRET = new RegExp(`"(?:${SECRET_MEMBERS})":|oncepay_sk_|whsec_|[rs]k_(?:live|test)_|Bearer |://[^"]*@`);

/** Lines are written in blocks of about this size, or after this time: a write per line costs more than the line. */
const BLOCK_BYTES = 8192;
const WRITTEN_AFTER_MS = 100;

/** POSIX: so much is written to a pipe in one piece; more may be mixed with what other processes write to it. */
const PIPE_PIECE_BYTES = 4096;

/** Standard output for processes that share it: in smaller blocks of whole lines, so that lines stay whole. */
export function sharedOutput(): DestinationStream {
  return pino.destination({
    dest: 1,
    sync: false,
    minLength: PIPE_PIECE_BYTES - 1024,
    maxWrite: PIPE_PIECE_BYTES,
    periodicFlush: WRITTEN_AFTER_MS,
  });
}

/**
 * The service's logger: one JSON object per line, times in RFC 3339, without secrets. Without a `stream` it writes to
 * standard output, unblocking and in order; what is still in memory is written when the process exits, and lost with
 * kill -9 only.
 */
export function createLogger(level: LogLevel, stream?: DestinationStream): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      hooks: { streamWrite: withoutSecrets },
    },
    stream ?? pino.destination({ dest: 1, sync: false, minLength: BLOCK_BYTES, periodicFlush: WRITTEN_AFTER_MS }),
  );
}

function withoutSecrets(line: string): string {
  if (!PERHAPS_SECRET.test(line)) return line;
  return line.replace(SECRETS, (_secret, member: string | undefined) =>
    member === undefined ? '[secret]' : `${member}":"[secret]"`,
  );
}
