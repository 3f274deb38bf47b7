import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { createLogger, type Logger } from '../../src/logger.js';

function logged(write: (logger: Logger) => void): string {
  const stream = new PassThrough();
  write(createLogger('debug', stream));
  return String(stream.read() ?? '');
}

describe('the logger', () => {
  it('writes one JSON object per line, with a level in words and an RFC 3339 time', () => {
    const line = JSON.parse(logged((logger) => logger.child({ request_id: 'r' }).info({ client_id: 'c' }, 'hello')));
    expect(line).toEqual({
      level: 'info',
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      request_id: 'r',
      client_id: 'c',
      msg: 'hello',
    });
  });

  it('writes nothing below its level', () => {
    expect(logged((logger) => logger.trace('quiet'))).toBe('');
  });

  const secret = 'hush-hush-hush';
  const places: [string, (logger: Logger) => void][] = [
    ['a member', (logger) => logger.info({ api_key: secret }, 'x')],
    ['a member one level down', (logger) => logger.info({ headers: { authorization: `Bearer ${secret}` } }, 'x')],
    ['a member two levels down', (logger) => logger.info({ req: { headers: { authorization: secret } } }, 'x')],
    [
      'configuration',
      (logger) => logger.info({ config: { stripe: { secret_key: secret, webhook_secrets: [secret] } } }, 'x'),
    ],
    ['an API key in a message', (logger) => logger.info(`got oncepay_sk_${secret}`)],
    ['a webhook secret in a message', (logger) => logger.info(`got whsec_${secret}`)],
    [
      'a Stripe key in an error',
      (logger) => logger.error({ err: new Error('Invalid key: sk_live_hushhushhush') }, 'x'),
    ],
    ['a bearer token in an error', (logger) => logger.error({ err: new Error(`sent Bearer ${secret}`) }, 'x')],
    ['a password in an address', (logger) => logger.warn({ err: new Error(`postgres://me:${secret}@host/db`) }, 'x')],
    ['a child', (logger) => logger.child({ api_key: secret }).info('x')],
  ];
  it.each(places)('keeps a secret in %s', (_name, write) => {
    const text = logged(write);
    expect(text).not.toMatch(/hush/);
    expect(text).toContain('[secret]');
    expect(() => JSON.parse(text) as unknown).not.toThrow();
  });

  it('leaves ordinary texts and addresses alone', () => {
    const text = logged((logger) => logger.info({ url: 'http://127.0.0.1:3000/payments?a=b:c@d' }, 'at 10:00, a@b'));
    expect(JSON.parse(text)).toMatchObject({ url: 'http://127.0.0.1:3000/payments?a=b:c@d', msg: 'at 10:00, a@b' });
  });
});
