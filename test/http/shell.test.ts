import type { Socket } from 'node:net';
import type { FastifyPluginAsync } from 'fastify';
import request from 'supertest';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { buildApp } from '../../src/app.js';
import { openDatabase } from '../../src/database/database.js';
import { OncepayError } from '../../src/domain/errors.js';
import { createLogger } from '../../src/logger.js';
import { addressOf, createEmptyDatabase } from '../support/database.js';
import { RawConnection, sendRaw } from '../support/raw-http.js';
import { type Shell, shellDependencies, startShell } from '../support/shell.js';

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const SOON = { timeout: 10_000, interval: 10 };
const OPEN = { public: true, openapi: 'hidden' } as const;

const routes: FastifyPluginAsync = async (app) => {
  app.get('/things/:id', { config: OPEN }, async (req) => ({ id: (req.params as { id: string }).id }));
  app.post('/things', { config: OPEN }, async () => ({}));
  app.get('/broken', { config: OPEN }, async () => {
    throw new Error('password=hunter2');
  });
  app.get('/refused', { config: OPEN }, async (req) => {
    req.payment_id = 'payment-7';
    throw new OncepayError('operation_in_progress', 'Wait.');
  });
};

describe('every answer', () => {
  let shell: Shell;
  beforeAll(async () => {
    shell = await startShell({ routes });
  });
  afterAll(() => shell.close());

  const problems: [string, string, number, string][] = [
    ['unknown path', 'GET /nothing', 404, 'not_found'],
    ['unknown method', 'PROPFIND /things', 405, 'method_not_allowed'],
    ['TRACE', 'TRACE /things', 405, 'method_not_allowed'],
    ['wrong method', 'PUT /things', 405, 'method_not_allowed'],
    ['bad percent-encoding', 'GET /things/%zz', 400, 'validation_failed'],
    ['invalid UTF-8 in the path', 'GET /things/%ff', 400, 'validation_failed'],
    ['a part of the path over 800 characters', `GET /things/${'x'.repeat(801)}`, 414, 'uri_too_long'],
    ['a path of 3 KB that is no route', `GET /${'x'.repeat(3000)}`, 404, 'not_found'],
    ['a double slash', 'GET //things/1', 404, 'not_found'],
    ['an unknown resource under OPTIONS', 'OPTIONS /nothing', 404, 'not_found'],
    ['17 KB of headers', `GET /things/1 X-Large: ${'x'.repeat(17 * 1024)}`, 431, 'headers_too_large'],
    ['no HTTP at all', 'HELLO', 400, 'validation_failed'],
    ['an unknown protocol', 'GET / HTTP/3.7', 400, 'validation_failed'],
  ];
  it.each(problems)('%s is a problem with a Request-Id', async (_name, text, status, code) => {
    const [method = '', path = '', ...header] = text.split(' ');
    const version = header[0]?.startsWith('HTTP/') === true ? header.shift() : 'HTTP/1.1';
    const lines = ['Host: x', 'Connection: close', ...(header.length > 0 ? [header.join(' ')] : [])];
    const answer = await sendRaw(shell.url, `${method} ${path} ${version ?? ''}\r\n${lines.join('\r\n')}\r\n\r\n`);

    expect(answer.status).toBe(status);
    expect(answer.headers['content-type']).toBe('application/problem+json; charset=utf-8');
    expect(answer.headers['request-id']).toMatch(UUID_V7);
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(answer.headers['x-content-type-options']).toBe('nosniff');
    expect(JSON.parse(answer.body)).toMatchObject({
      type: `/problems/${code}`,
      status,
      code,
      request_id: answer.headers['request-id'],
    });
  });

  it('a request that does not arrive in time is a problem, and the connection ends', async () => {
    const accepted = new Promise<Socket>((resolve) => shell.app.server.once('connection', resolve));
    const connection = await RawConnection.open(shell.url);
    connection.write('POST /things HTTP/1.1\r\nHost: x\r\n');
    // What Node says of it after 15 seconds.
    shell.app.server.emit(
      'clientError',
      Object.assign(new Error('late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }),
      await accepted,
    );
    const answer = await connection.answer();
    expect(answer.status).toBe(408);
    expect(JSON.parse(answer.body)).toMatchObject({
      code: 'request_timeout',
      request_id: answer.headers['request-id'],
    });
    await connection.end();
  });

  it('a NUL in the path reaches the route as text and breaks nothing', async () => {
    const answer = await request(shell.url).get('/things/a%00b').expect(200);
    expect(answer.body).toEqual({ id: 'a\0b' });
  });

  it('a 405 and OPTIONS tell which methods there are', async () => {
    const refused = await request(shell.url).put('/things').expect(405);
    expect(refused.headers.allow).toBe('POST');
    const asked = await request(shell.url).options('/things/1').expect(204);
    expect(asked.headers.allow).toBe('GET, HEAD');
    expect(asked.text).toBe('');
  });

  it('HEAD answers like GET without a body', async () => {
    const answer = await request(shell.url).head('/things/1').expect(200);
    expect(answer.headers['content-length']).toBe(String('{"id":"1"}'.length));
    expect(answer.headers['request-id']).toMatch(UUID_V7);
  });

  it('a request without Host is a problem too, except in HTTP/1.0, which has none', async () => {
    const answer = await sendRaw(shell.url, 'GET /health/live HTTP/1.1\r\n\r\n');
    expect(answer.status).toBe(400);
    expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/);
    const problem = JSON.parse(answer.body) as Record<string, unknown>;
    expect(problem).toMatchObject({ code: 'validation_failed', request_id: answer.headers['request-id'] });
    expect((await sendRaw(shell.url, 'GET /health/live HTTP/1.0\r\n\r\n')).status).toBe(200);
  });

  it('an expectation that nobody knows is ignored', async () => {
    const answer = await sendRaw(shell.url, 'GET /things/1 HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n');
    expect(answer.status).toBe(200);
  });

  it('OPTIONS * is answered', async () => {
    const answer = await sendRaw(shell.url, 'OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(answer.status).toBe(404);
    expect(JSON.parse(answer.body).code).toBe('not_found');
  });

  it('an unexpected error is a 500 that tells nothing, and is logged with its stack', async () => {
    const answer = await request(shell.url).get('/broken').expect(500);
    expect(answer.body.code).toBe('internal');
    expect(answer.text).not.toContain('hunter2');
    const logged = shell.log.find((line) => line.request_id === answer.headers['request-id'] && line.level === 'error');
    expect(logged?.err).toMatchObject({ message: 'password=hunter2', stack: expect.stringContaining('shell.test') });
  });

  it('is logged in one line, with what it was about', async () => {
    const { headers } = await request(shell.url).get('/refused').set('X-Request-Id', 'theirs-1').expect(409);
    expect(headers['request-id']).not.toBe('theirs-1');
    const mine = () => shell.log.filter((line) => line.request_id === headers['request-id']);
    await vi.waitFor(() => expect(mine()).toHaveLength(1), SOON);
    expect(mine()[0]).toMatchObject({
      level: 'info',
      msg: 'request',
      method: 'GET',
      route: '/refused',
      status: 409,
      payment_id: 'payment-7',
      code: 'operation_in_progress',
      caller_request_id: 'theirs-1',
      duration_ms: expect.any(Number),
    });
  });

  it('an X-Request-Id that is none is not logged', async () => {
    const { headers } = await request(shell.url).get('/refused').set('X-Request-Id', '<script>').expect(409);
    const mine = () => shell.log.filter((line) => line.request_id === headers['request-id']);
    await vi.waitFor(() => expect(mine()).toHaveLength(1), SOON);
    expect(mine()[0]).not.toHaveProperty('caller_request_id');
  });

  it('is counted by the pattern of its route', async () => {
    await request(shell.url).get('/things/secret-id').expect(200);
    const { text, headers } = await request(shell.url).get('/metrics').expect(200);
    expect(headers['content-type']).toMatch(/^text\/plain; version=0\.0\.4/);
    expect(text).toMatch(/oncepay_http_requests_total\{route="\/things\/:id",method="GET",status="2xx"\} \d/);
    expect(text).not.toContain('secret-id');
    expect(text).toContain('oncepay_backlog{work="needs_review"} 0');
    expect(text).toContain('oncepay_backlog_known 1');
    expect(text).toContain('oncepay_database_connections{state="waiting"} 0');
  });
});

describe('the start', () => {
  const build = async (config: Record<string, unknown>): Promise<unknown> => {
    const database = openDatabase('postgres://nobody@127.0.0.1:1/nothing', { pool_size: 1 });
    const app = await buildApp({
      ...(await shellDependencies(database, createLogger('silent'))),
      hooks: { routes: async (scope) => void scope.get('/x', { config }, async () => ({})) },
    });
    await app.close();
    return app;
  };

  it('is refused for a route that says neither who may call it nor that everybody may', async () => {
    await expect(build({ openapi: 'hidden' })).rejects.toThrow('GET /x');
    await expect(build({ openapi: 'hidden', public: true, scope: 'payments:read' })).rejects.toThrow('GET /x');
  });

  it('is refused for a route that does not describe itself', async () => {
    await expect(build({ public: true })).rejects.toThrow('GET /x has no config.openapi');
    await expect(build(OPEN)).resolves.toBeDefined();
  });
});

describe('health', () => {
  let shell: Shell | undefined;
  afterEach(() => shell?.close());

  it('is alive and ready over a migrated database', async () => {
    shell = await startShell();
    await request(shell.url).get('/health/live').expect(200, { status: 'ok' });
    await request(shell.url)
      .get('/health/ready')
      .expect(200, { status: 'ok', checks: { database: 'ok', migrations: 'ok', shutdown: 'ok' } });
  });

  it('takes one connection at most, however many ask', async () => {
    shell = await startShell();
    const { pool } = shell.database;
    const busiest: number[] = [];
    pool.on('acquire', () => busiest.push(pool.totalCount - pool.idleCount));
    await Promise.all(
      Array.from({ length: 20 }, () =>
        request(shell?.url ?? '')
          .get('/health/ready')
          .expect(200),
      ),
    );
    expect(Math.max(...busiest)).toBe(1);
  });

  it('is alive but not ready while the database is away', async () => {
    shell = await startShell({ address: addressOf('postgres://nobody@127.0.0.1:1/nothing') });
    await request(shell.url).get('/health/live').expect(200);
    const answer = await request(shell.url).get('/health/ready').expect(503);
    expect(answer.body).toEqual({
      status: 'unavailable',
      checks: { database: 'unreachable', migrations: 'unknown', shutdown: 'ok' },
    });
    const { text } = await request(shell.url).get('/metrics').expect(200);
    expect(text).toContain('oncepay_backlog_known 0');
  });

  it('is not ready before the migrations are applied', async () => {
    const empty = await createEmptyDatabase();
    shell = await startShell({ address: empty });
    const answer = await request(shell.url).get('/health/ready').expect(503);
    expect(answer.body.checks).toMatchObject({ database: 'ok', migrations: 'pending' });
    await shell.close();
    await empty.drop();
    shell = undefined;
  });
});

describe('closing', () => {
  it('lets requests under way finish, refuses new ones, and is not held by a lone connection', async () => {
    let open: () => void = () => undefined;
    let reached = false;
    const opened = new Promise<void>((resolve) => (open = resolve));
    const shell = await startShell({
      routes: async (app) => {
        app.get('/slow', { config: OPEN }, async () => {
          reached = true;
          await opened;
          return { done: true };
        });
      },
    });
    const inFlight = await RawConnection.open(shell.url);
    const beginning = await RawConnection.open(shell.url);
    const ready = await RawConnection.open(shell.url);
    const idle = await RawConnection.open(shell.url);
    inFlight.write('GET /slow HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n');
    idle.write('GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n');
    beginning.write('GET /health/live HTTP/1.1\r\nHost: x\r\n\r\nGET /slow HTTP/1.1\r\nHost: x\r\n');
    ready.write('GET /health/live HTTP/1.1\r\nHost: x\r\n\r\nGET /health/ready HTTP/1.1\r\nHost: x\r\n');
    await Promise.all([idle.answer(), beginning.answer(), ready.answer()]);
    await vi.waitFor(() => expect(reached).toBe(true), SOON);

    const closed = shell.close();
    await vi.waitFor(() => expect(shell.app.isDraining()).toBe(true), SOON);
    await idle.end();
    beginning.write('\r\n');
    ready.write('\r\n');
    const refused = await beginning.answer();
    expect(refused.status).toBe(503);
    expect(refused.headers).toMatchObject({ connection: 'close', 'retry-after': '1' });
    expect(JSON.parse(refused.body).code).toBe('unavailable');
    const readiness = await ready.answer();
    expect(readiness.status).toBe(503);
    expect(JSON.parse(readiness.body).checks.shutdown).toBe('draining');

    open();
    const finished = await inFlight.answer();
    expect(finished).toMatchObject({ status: 200, body: '{"done":true}' });
    expect(finished.headers.connection).toBe('close');
    await inFlight.end();
    await closed;
  });
});
