import { z } from 'zod';
import { LOG_LEVELS } from './logger.js';

/**
 * Every environment variable: what it takes, what it is when unset, what it is for. `.env.example` and
 * docs/configuration.md are made from this table and checked against it by a test.
 */
export interface Variable<T> {
  readonly schema: z.ZodType<T, string>;
  /** What is taken, for the message that refuses another value: "expected …". */
  readonly expected: string;
  /** The value when unset, as one would write it, or a word on what happens then. */
  readonly unset: { readonly value: string } | { readonly means: string };
  readonly what: string;
  /** Never printed, and set to nothing it is a mistake rather than unset. */
  readonly secret?: true;
}

/** The longest delay that a timer can hold is 2^31 - 1 ms; an hour is plenty for all of ours. */
const HOUR_MS = 3_600_000;

function wholeNumber(min: number, max: number, unit = ''): Pick<Variable<number>, 'schema' | 'expected'> {
  const schema = z
    .string()
    .regex(/^(0|[1-9]\d{0,14})$/)
    .transform(Number)
    .refine((value) => value >= min && value <= max);
  return { schema, expected: `a whole number${unit === '' ? '' : ` of ${unit}`} from ${min} to ${max}, digits only` };
}

function oneOf<const T extends string>(values: readonly T[]): Pick<Variable<T>, 'schema' | 'expected'> {
  return { schema: z.enum(values), expected: `one of ${values.join(', ')}` };
}

function pattern(regex: RegExp, expected: string): Pick<Variable<string>, 'schema' | 'expected'> {
  return { schema: z.string().regex(regex), expected };
}

function url(protocols: readonly string[], expected: string): Pick<Variable<string>, 'schema' | 'expected'> {
  const schema = z.string().refine((text) => {
    if (/\s/.test(text) || !URL.canParse(text)) return false;
    return protocols.includes(new URL(text).protocol);
  });
  return { schema, expected };
}

/** Comma-separated, blanks around the items allowed, no empty item, none twice. */
function list(item: RegExp, expected: string): Pick<Variable<readonly string[]>, 'schema' | 'expected'> {
  const schema = z
    .string()
    .transform((text) => text.split(',').map((part) => part.trim()))
    .refine((parts) => parts.every((part) => item.test(part)) && new Set(parts).size === parts.length);
  return { schema, expected };
}

const httpUrl = url(['http:', 'https:'], 'an address that begins with http:// or https://');
const BASE64 = '(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)';

export const PROVIDER_NAMES = ['sandbox', 'stripe', 'instant'] as const;
export const LEASE_MAX_MS = 30_000;

/** What `DATABASE_URL` leads through, by what it keeps for a connection between two transactions. */
export type Pooler = (typeof POOLERS)[number];
const POOLERS = ['none', 'transaction', 'transaction-prepared'] as const;

export const VARIABLES = {
  HOST: {
    ...pattern(/^[A-Za-z0-9.:_-]{1,255}$/, 'a host name or an IP address to listen on'),
    unset: { value: '127.0.0.1' },
    what: 'Where the service listens. `0.0.0.0` for every interface.',
  },
  PORT: {
    ...wholeNumber(0, 65_535),
    unset: { value: '3000' },
    what: 'The port; 0 takes a free one, which the start-up text tells.',
  },
  PROCESSES: {
    ...wholeNumber(1, 256),
    unset: { value: '1' },
    what: 'How many processes serve on that port, one per core at most: docs/processes.md.',
  },
  DATABASE_URL: {
    ...url(['postgres:', 'postgresql:'], 'an address that begins with postgres:// or postgresql://'),
    secret: true,
    unset: { means: 'a real PostgreSQL of our own, in `DATA_DIR`/postgres, on a free port' },
    what: 'PostgreSQL 15 or later, encoding UTF8. Not printed, since it may hold a password.',
  },
  DATABASE_POOL_SIZE: {
    ...wholeNumber(2, 500),
    unset: { value: '10' },
    what: 'The most connections of one process; each has one more to hear of changed keys.',
  },
  DATABASE_POOLER: {
    ...oneOf(POOLERS),
    unset: { value: 'none' },
    what: 'What `DATABASE_URL` leads through: PostgreSQL itself, or a pooler in transaction mode such as PgBouncer; `transaction-prepared` where that keeps prepared statements (1.21 or later). The database then has to make our settings: docs/pgbouncer.md.',
  },
  DATA_DIR: {
    ...pattern(/^[^\0]+$/, 'a path'),
    unset: {
      means:
        '.data in the working directory; as root in a folder that other users cannot enter: below /var/lib/oncepay',
    },
    what: 'What the embedded parts keep: database, API key, ledger of the sandbox. Survives restarts. One service at a time.',
  },
  INSTALLATION_ID: {
    ...pattern(/^[A-Za-z0-9._:-]{1,64}$/, '1 to 64 letters, digits, dots, underscores, colons or dashes'),
    unset: { means: 'made once and kept in the database' },
    what: 'Part of every provider key and of the metadata at the provider. Set it where the database may be lost; never change it once there are payments.',
  },
  BOOTSTRAP_API_KEY: {
    ...pattern(
      /^[\x21-\x7e]{16,256}$/,
      '16 to 256 printable ASCII characters without blanks; left out rather than empty',
    ),
    secret: true,
    unset: { means: 'embedded database: one is made and kept in `DATA_DIR`/api-key (0600); otherwise none' },
    what: 'When no client exists: makes the client `default` with this key and every scope.',
  },
  PROVIDERS: {
    ...list(
      new RegExp(`^(${PROVIDER_NAMES.join('|')})$`),
      `some of ${PROVIDER_NAMES.join(', ')}, comma-separated, none twice`,
    ),
    unset: { value: 'sandbox' },
    what: 'What moves the money. The first is the default. `instant` moves nothing and is for benchmarks only.',
  },
  SANDBOX_URL: {
    ...httpUrl,
    unset: { means: 'the simulator runs inside; the start-up text tells its address' },
    what: 'Of a simulator that runs by itself (`npm run sandbox`).',
  },
  SANDBOX_PORT: {
    ...wholeNumber(0, 65_535),
    unset: { value: '0' },
    what: 'Where the simulator listens; 0 takes a free port.',
  },
  SANDBOX_WEBHOOK_URL: {
    ...httpUrl,
    unset: { means: 'inside: our own /webhooks/sandbox' },
    what: 'Where the simulator sends its webhooks.',
  },
  SANDBOX_WEBHOOK_SECRETS: {
    ...list(
      new RegExp(`^whsec_${BASE64}$`),
      'whsec_… (whsec_ and base64), comma-separated, the newest first; left out rather than empty',
    ),
    secret: true,
    unset: { means: 'simulator inside: one is made and kept in `DATA_DIR`; outside: its webhooks are refused' },
    what: 'What the webhooks of the sandbox are signed with. Several while one replaces another.',
  },
  STRIPE_SECRET_KEY: {
    ...pattern(
      /^[sr]k_[\x21-\x7e]{1,250}$/,
      'sk_… or rk_…, as the Stripe dashboard shows it; left out rather than empty',
    ),
    secret: true,
    unset: { means: 'needed when `PROVIDERS` has stripe' },
    what: 'The secret or restricted key.',
  },
  STRIPE_API_BASE: {
    ...httpUrl,
    unset: { means: 'https://api.stripe.com' },
    what: 'For test servers.',
  },
  STRIPE_WEBHOOK_SECRETS: {
    ...list(
      /^whsec_[\x21-\x2b\x2d-\x7e]{1,250}$/,
      'whsec_…, comma-separated, the newest first; left out rather than empty',
    ),
    secret: true,
    unset: { means: 'needed when `PROVIDERS` has stripe' },
    what: "Of Stripe's webhook endpoint. Several while one replaces another.",
  },
  KAFKA_BROKERS: {
    ...list(/^[A-Za-z0-9._-]{1,253}:\d{1,5}$/, 'host:port, comma-separated, none twice'),
    unset: { means: 'events stay in the outbox and in the timeline' },
    what: 'Where events are published and commands are read.',
  },
  IDEMPOTENCY_RETENTION_HOURS: {
    ...wholeNumber(24, 72, 'hours'),
    unset: { value: '72' },
    what: 'How long a stored answer is replayed.',
  },
  PROCESSED_EVENT_RETENTION_HOURS: {
    ...wholeNumber(24, 8_760, 'hours'),
    unset: { value: '168' },
    what: 'How long an applied event is remembered: longer than any provider or broker delivers it again.',
  },
  LEASE_MS: {
    ...wholeNumber(100, LEASE_MAX_MS, 'milliseconds'),
    unset: { means: '20000, or twice `PROVIDER_TIMEOUT_MS` where that is set' },
    what: 'How long a request owns its key. A crash is repaired when it is over.',
  },
  PROVIDER_TIMEOUT_MS: {
    ...wholeNumber(50, LEASE_MAX_MS, 'milliseconds'),
    unset: { means: 'half of `LEASE_MS`, 10000 at most' },
    what: 'For the call to the provider with all its tries; at most 0.9 × `LEASE_MS`, since settling has to fit as well.',
  },
  RECOVERY_INTERVAL_MS: {
    ...wholeNumber(50, HOUR_MS, 'milliseconds'),
    unset: { value: '1000' },
    what: 'How often leases that are over are looked for.',
  },
  RECONCILE_INTERVAL_MS: {
    ...wholeNumber(50, HOUR_MS, 'milliseconds'),
    unset: { value: '2000' },
    what: 'How often operations are looked for whose outcome has to be asked at the provider.',
  },
  SHUTDOWN_TIMEOUT_MS: {
    ...wholeNumber(100, 600_000, 'milliseconds'),
    unset: { means: '`PROVIDER_TIMEOUT_MS` + 15000' },
    what: 'How long the end may take after SIGTERM; longer than `PROVIDER_TIMEOUT_MS`, so that charges under way finish.',
  },
  AUTO_REFUND_ANOMALIES: {
    ...oneOf(['true', 'false']),
    unset: { value: 'false' },
    what: 'Refund what was taken twice or after a cancel, once.',
  },
  RATE_LIMIT_PER_SECOND: {
    ...wholeNumber(0, 1_000_000),
    unset: { value: '500' },
    what: 'Requests of one client per second and instance, shared out evenly among its `PROCESSES`; 0 switches it off.',
  },
  LOG_LEVEL: {
    ...oneOf(LOG_LEVELS),
    unset: { value: 'info' },
    what: 'What is logged.',
  },
} as const satisfies Record<string, Variable<unknown>>;

export type VariableName = keyof typeof VARIABLES;
