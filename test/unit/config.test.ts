import { describe, expect, test } from 'vitest';
import { ConfigError, configWarnings, parseConfig } from '../../src/config.js';
import { VARIABLES, type VariableName } from '../../src/config-variables.js';

function refusal(env: NodeJS.ProcessEnv): string {
  try {
    parseConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  return '';
}

test('nothing set: the service of a first try', () => {
  expect(parseConfig({})).toEqual({
    http: { host: '127.0.0.1', port: 3000 },
    processes: 1,
    database: { url: null, pool_size: 10, pooler: 'none' },
    data_dir: null,
    installation_id: null,
    bootstrap_api_key: null,
    providers: ['sandbox'],
    sandbox: { url: null, port: 0, webhook_url: null, webhook_secrets: [] },
    stripe: { secret_key: null, api_base: null, webhook_secrets: [] },
    kafka_brokers: null,
    retention: { idempotency_h: 72, processed_event_h: 168 },
    timing: {
      lease_ms: 20_000,
      provider_timeout_ms: 10_000,
      recovery_interval_ms: 1_000,
      reconcile_interval_ms: 2_000,
      shutdown_timeout_ms: 25_000,
    },
    auto_refund_anomalies: false,
    rate_limit_per_second: 500,
    log_level: 'info',
  });
});

test('everything set', () => {
  const env = {
    HOST: '0.0.0.0',
    PORT: '8080',
    PROCESSES: '4',
    DATABASE_URL: 'postgres://user:secret@db.internal:5432/payments?sslmode=require',
    DATABASE_POOL_SIZE: '40',
    DATABASE_POOLER: 'transaction',
    DATA_DIR: '/srv/oncepay',
    INSTALLATION_ID: 'eu-1',
    BOOTSTRAP_API_KEY: 'oncepay_sk_0123456789',
    PROVIDERS: 'stripe, sandbox',
    SANDBOX_URL: 'http://127.0.0.1:4010',
    SANDBOX_PORT: '4010',
    SANDBOX_WEBHOOK_URL: 'http://127.0.0.1:8080/webhooks/sandbox',
    SANDBOX_WEBHOOK_SECRETS: 'whsec_bmV3ZXN0IHNlY3JldCE=,whsec_b2xkZXIgc2VjcmV0ISEh',
    STRIPE_SECRET_KEY: 'sk_test_123',
    STRIPE_API_BASE: 'http://127.0.0.1:12111',
    STRIPE_WEBHOOK_SECRETS: 'whsec_abc',
    KAFKA_BROKERS: 'k1:9092,k2:9092',
    IDEMPOTENCY_RETENTION_HOURS: '24',
    PROCESSED_EVENT_RETENTION_HOURS: '240',
    LEASE_MS: '5000',
    PROVIDER_TIMEOUT_MS: '4500',
    RECOVERY_INTERVAL_MS: '100',
    RECONCILE_INTERVAL_MS: '100',
    SHUTDOWN_TIMEOUT_MS: '4501',
    AUTO_REFUND_ANOMALIES: 'true',
    RATE_LIMIT_PER_SECOND: '0',
    LOG_LEVEL: 'debug',
  } satisfies Record<VariableName, string>;
  const config = parseConfig(env);
  expect(config).toMatchObject({
    http: { host: '0.0.0.0', port: 8080 },
    processes: 4,
    database: { pool_size: 40, pooler: 'transaction' },
    providers: ['stripe', 'sandbox'],
    sandbox: { webhook_secrets: ['whsec_bmV3ZXN0IHNlY3JldCE=', 'whsec_b2xkZXIgc2VjcmV0ISEh'] },
    kafka_brokers: ['k1:9092', 'k2:9092'],
    timing: { lease_ms: 5000, provider_timeout_ms: 4500, shutdown_timeout_ms: 4501 },
    auto_refund_anomalies: true,
    rate_limit_per_second: 0,
  });
});

describe('a wrong value names its variable and says what was expected', () => {
  test.each<[VariableName, string[]]>([
    ['PORT', ['65536', '-1', '+5', '1e3', '0x10', ' 80', '80 ', '8_0', '08', '1.0', '٣', '１２', 'NaN', ' ']],
    ['HOST', ['a b', 'http://x']],
    ['PROCESSES', ['0', '257', '1.5', 'auto', 'max']],
    ['DATABASE_URL', ['', 'mysql://db/x', 'localhost:5432', 'postgres://host/with blank', 'postgres://[bad']],
    ['DATABASE_POOL_SIZE', ['0', '1', '501']],
    ['DATABASE_POOLER', ['pgbouncer', 'session', 'Transaction']],
    ['INSTALLATION_ID', ['a b', 'é', 'x'.repeat(65)]],
    ['BOOTSTRAP_API_KEY', ['', 'short', 'with a blank inside it', 'é'.repeat(20)]],
    ['PROVIDERS', ['paypal', 'sandbox,sandbox', 'sandbox,', ',', ' ', 'Sandbox']],
    ['SANDBOX_URL', ['localhost:4010', 'ftp://x', 'http://']],
    [
      'SANDBOX_WEBHOOK_SECRETS',
      ['', 'whsec_', 'abc', 'whsec_not base64', 'whsec_abc', 'whsec_bmV3ZXN0,', 'whsec_bmV3,whsec_bmV3'],
    ],
    ['STRIPE_SECRET_KEY', ['', 'pk_test_1', 'sk_']],
    ['STRIPE_WEBHOOK_SECRETS', ['', 'whsec_', 'secret']],
    ['KAFKA_BROKERS', ['kafka', 'kafka:', 'a:9092,a:9092', 'kafka://a:9092']],
    ['IDEMPOTENCY_RETENTION_HOURS', ['23', '73', '24.5']],
    ['PROCESSED_EVENT_RETENTION_HOURS', ['0', '23']],
    ['LEASE_MS', ['99', '30001']],
    ['PROVIDER_TIMEOUT_MS', ['49', '27001', '30000']],
    ['RECOVERY_INTERVAL_MS', ['0', '3600001']],
    ['RECONCILE_INTERVAL_MS', ['0', '-1']],
    ['SHUTDOWN_TIMEOUT_MS', ['10000', '99', '600001']],
    ['AUTO_REFUND_ANOMALIES', ['yes', '1', 'TRUE']],
    ['RATE_LIMIT_PER_SECOND', ['-1', 'off']],
    ['LOG_LEVEL', ['verbose', 'INFO']],
  ])('%s', (name, values) => {
    for (const value of values)
      expect(refusal({ [name]: value }), JSON.stringify(value)).toMatch(new RegExp(`^${name}: .*expected`));
  });

  test('but never shows a secret', () => {
    const secrets = Object.entries(VARIABLES).filter(([, variable]) => 'secret' in variable);
    expect(secrets.map(([name]) => name)).toEqual([
      'DATABASE_URL',
      'BOOTSTRAP_API_KEY',
      'SANDBOX_WEBHOOK_SECRETS',
      'STRIPE_SECRET_KEY',
      'STRIPE_WEBHOOK_SECRETS',
    ]);
    for (const [name] of secrets) {
      expect(refusal({ [name]: 'pa ss' })).toContain(name);
      expect(refusal({ [name]: 'pa ss' })).not.toContain('pa ss');
    }
  });
});

test('set to nothing is unset, but for secrets', () => {
  const names = Object.keys(VARIABLES) as VariableName[];
  const not_secret = names.filter((name) => !('secret' in VARIABLES[name]));
  expect(parseConfig(Object.fromEntries(not_secret.map((name) => [name, ''])))).toEqual(parseConfig({}));
});

test('a pooler is one that DATABASE_URL leads through', () => {
  expect(refusal({ DATABASE_POOLER: 'transaction' })).toMatch(/^DATABASE_POOLER: is transaction, but DATABASE_URL/);
});

describe('times', () => {
  test.each([
    [{ LEASE_MS: '1000' }, { lease_ms: 1000, provider_timeout_ms: 500 }],
    [{ LEASE_MS: '100' }, { lease_ms: 100, provider_timeout_ms: 50 }],
    [{ LEASE_MS: '30000' }, { lease_ms: 30_000, provider_timeout_ms: 10_000 }],
    [{ PROVIDER_TIMEOUT_MS: '3000' }, { lease_ms: 6000, provider_timeout_ms: 3000, shutdown_timeout_ms: 18_000 }],
    [{ PROVIDER_TIMEOUT_MS: '100' }, { lease_ms: 1000, provider_timeout_ms: 100 }],
    [{ PROVIDER_TIMEOUT_MS: '27000' }, { lease_ms: 30_000, provider_timeout_ms: 27_000 }],
  ])('%j', (env, timing) => {
    expect(parseConfig(env).timing).toMatchObject(timing);
  });

  test('the provider call leaves room in the lease for settling', () => {
    expect(refusal({ LEASE_MS: '1000', PROVIDER_TIMEOUT_MS: '901' })).toMatch(
      /^PROVIDER_TIMEOUT_MS: .*at most 900 .*LEASE_MS/,
    );
    expect(refusal({ LEASE_MS: '1000', PROVIDER_TIMEOUT_MS: '900' })).toBe('');
  });

  test('the drain outlives the provider call', () => {
    expect(refusal({ PROVIDER_TIMEOUT_MS: '500', SHUTDOWN_TIMEOUT_MS: '500' })).toMatch(
      /^SHUTDOWN_TIMEOUT_MS: .*PROVIDER_TIMEOUT_MS/,
    );
  });
});

describe('providers', () => {
  test('stripe says which variable it needs', () => {
    expect(refusal({ PROVIDERS: 'stripe' })).toMatch(/^STRIPE_SECRET_KEY: is needed/);
    expect(refusal({ PROVIDERS: 'stripe', STRIPE_SECRET_KEY: 'sk_test_1' })).toMatch(
      /^STRIPE_WEBHOOK_SECRETS: is needed/,
    );
    expect(refusal({ PROVIDERS: 'stripe', STRIPE_SECRET_KEY: 'rk_live_1', STRIPE_WEBHOOK_SECRETS: 'whsec_1' })).toBe(
      '',
    );
  });

  test('what is allowed but worth a word', () => {
    expect(configWarnings(parseConfig({}))).toEqual([]);
    expect(configWarnings(parseConfig({ PROVIDERS: 'instant' }))).toEqual([expect.stringContaining('moves no money')]);
    expect(configWarnings(parseConfig({ PROCESSES: '8' }))).toEqual([]);
    expect(configWarnings(parseConfig({ PROCESSES: '9' }))).toEqual([expect.stringContaining('99 connections')]);
    expect(configWarnings(parseConfig({ PROCESSES: '9', DATABASE_URL: 'postgres://db/x' }))).toEqual([]);
    expect(configWarnings(parseConfig({ SANDBOX_URL: 'http://127.0.0.1:1' }))).toEqual([
      expect.stringContaining('SANDBOX_WEBHOOK_SECRETS'),
    ]);
    expect(configWarnings(parseConfig({ BOOTSTRAP_API_KEY: '0123456789abcdef' }))).toEqual([
      expect.stringContaining('BOOTSTRAP_API_KEY'),
    ]);
  });
});
