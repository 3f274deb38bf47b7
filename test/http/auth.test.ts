import type { FastifyPluginAsync } from 'fastify';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { revokeKey, rotateKey, setDisabled, setScopes } from '../../src/clients/changes.js';
import { clientOf } from '../../src/http/request.js';
import { addressOf } from '../support/database.js';
import { sendRaw } from '../support/raw-http.js';
import { type Shell, startShell } from '../support/shell.js';

const BY = { actor: 'test' };
const SOON = { timeout: 5_000, interval: 20 };

const routes: FastifyPluginAsync = async (app) => {
  app.get('/read', { config: { scope: 'payments:read', openapi: 'hidden' } }, async (req) => clientOf(req));
  app.put('/write', { config: { scope: 'payments:write', openapi: 'hidden' } }, async (req) => clientOf(req));
  app.get('/open', { config: { public: true, openapi: 'hidden' } }, async (req) => ({ client: req.client }));
};

describe('authentication', () => {
  let shell: Shell;
  let key: string;
  beforeAll(async () => {
    shell = await startShell({ routes });
    key = await shell.client('shop');
  });
  afterAll(() => shell.close());

  const read = (api_key: string) => request(shell.url).get('/read').set('Authorization', `Bearer ${api_key}`);

  it('knows the client by its key', async () => {
    const answer = await read(key).expect(200);
    expect(answer.body).toMatchObject({ id: 'shop', scopes: ['payments:write', 'payments:read', 'commands', 'admin'] });
  });

  it('takes the scheme in any case', async () => {
    await request(shell.url).get('/read').set('Authorization', `bEARER ${key}`).expect(200);
  });

  it('asks for nothing on public routes, and knows nobody there', async () => {
    const answer = await request(shell.url).get('/open').set('Authorization', `Bearer ${key}`).expect(200);
    expect(answer.body).toEqual({ client: null });
  });

  it('refuses a request without a key', async () => {
    const answer = await request(shell.url).get('/read').expect(401);
    expect(answer.body.code).toBe('unauthenticated');
    expect(answer.headers['www-authenticate']).toBe('Bearer realm="oncepay"');
  });

  const oddities: [string, (key: string) => string][] = [
    ['an unknown key', () => `Bearer oncepay_sk_${'A'.repeat(43)}`],
    ['a key of odd length', (good) => `Bearer ${good}x`],
    ['a key that lacks its end', (good) => `Bearer ${good.slice(0, -1)}`],
    ['a key in other case', (good) => `Bearer ${good.toUpperCase()}`],
    ['one character', () => 'Bearer x'],
    ['4,000 characters', () => `Bearer ${'x'.repeat(4000)}`],
    ['no characters', () => 'Bearer '],
    ['another scheme', (good) => `Basic ${good}`],
    ['no scheme', (good) => good],
    ['two keys', (good) => `Bearer ${good} ${good}`],
    ['a comma', (good) => `Bearer ${good}, Bearer ${good}`],
    ['other bytes', () => `Bearer ${'é'.repeat(40)}`],
  ];
  it.each(oddities)('refuses %s', async (_name, header) => {
    const answer = await sendRaw(shell.url, `GET /read HTTP/1.1\r\nHost: x\r\nAuthorization: ${header(key)}\r\n\r\n`);
    expect(answer.status).toBe(401);
    expect(answer.headers['www-authenticate']).toBe('Bearer realm="oncepay", error="invalid_token"');
    expect(JSON.parse(answer.body).code).toBe('unauthenticated');
  });

  it('refuses two Authorization lines, even with the same key', async () => {
    const line = `Authorization: Bearer ${key}\r\n`;
    const answer = await sendRaw(shell.url, `GET /read HTTP/1.1\r\nHost: x\r\n${line}${line}\r\n`);
    expect(answer.status).toBe(401);
  });

  it('is decided before anything of the body is looked at', async () => {
    await request(shell.url).put('/write').set('Content-Type', 'text/plain').send('{{{').expect(401);
  });

  it('says 403 where the scope is missing', async () => {
    const reader = await shell.client('reader', ['payments:read']);
    await read(reader).expect(200);
    const answer = await request(shell.url).put('/write').set('Authorization', `Bearer ${reader}`).expect(403);
    expect(answer.body).toMatchObject({ code: 'forbidden', detail: expect.stringContaining('payments:write') });
  });

  it('lets admin read, and not write', async () => {
    const admin = await shell.client('admin', ['admin']);
    await read(admin).expect(200);
    await request(shell.url).put('/write').set('Authorization', `Bearer ${admin}`).expect(403);
  });

  it('knows a new key at once, also one that was refused before', async () => {
    const { pool } = shell.database;
    const late = await shell.client('late');
    const { rows } = await pool.query(`delete from api_key where client_id = 'late' returning *`);
    await vi.waitFor(() => read(late).expect(401), SOON);
    const { id, client_id, key_hash, hint } = rows[0];
    await pool.query('insert into api_key (id, client_id, key_hash, hint) values ($1, $2, $3, $4)', [
      id,
      client_id,
      key_hash,
      hint,
    ]);
    await read(late).expect(200);
  });

  it('forgets a revoked key', async () => {
    const ended = await shell.client('ended');
    await read(ended).expect(200);
    await revokeKey(shell.database.pool, ended.slice(0, 17), BY);
    await vi.waitFor(() => read(ended).expect(401), SOON);
  });

  it('forgets a disabled client, and knows it again', async () => {
    const paused = await shell.client('paused');
    await read(paused).expect(200);
    await setDisabled(shell.database.pool, 'paused', true, BY);
    await vi.waitFor(() => read(paused).expect(401), SOON);
    await setDisabled(shell.database.pool, 'paused', false, BY);
    await read(paused).expect(200);
  });

  it('sees changed scopes', async () => {
    const shrinking = await shell.client('shrinking');
    await read(shrinking).expect(200);
    await setScopes(shell.database.pool, 'shrinking', ['commands'], BY);
    await vi.waitFor(() => read(shrinking).expect(403), SOON);
  });

  it('keeps the client over a rotation, and the old key until its time is over', async () => {
    const old = await shell.client('rotating');
    const { key: overlapping } = await rotateKey(shell.database.pool, 'rotating', 1, BY);
    for (const each of [old, overlapping]) expect((await read(each).expect(200)).body.id).toBe('rotating');
    const { key: last } = await rotateKey(shell.database.pool, 'rotating', 0, BY);
    await vi.waitFor(() => read(old).expect(401), SOON);
    await vi.waitFor(() => read(overlapping).expect(401), SOON);
    await read(last).expect(200);
  });

  it('remembers a key no longer than it is valid', async () => {
    const short = await shell.client('short');
    await shell.database.pool.query(
      `update api_key set expires_at = clock_timestamp() + interval '300 ms' where client_id = 'short'`,
    );
    await read(short).expect(200);
    const { rows } = await shell.database.pool.query<{ left_ms: number }>(
      `select (extract(epoch from expires_at - clock_timestamp()) * 1000)::float8 as left_ms from api_key where client_id = 'short'`,
    );
    const until = performance.now() + (rows[0]?.left_ms ?? 0);
    await vi.waitFor(() => expect(performance.now()).toBeGreaterThan(until), SOON);
    await read(short).expect(401);
  });
});

describe('the time of last use', () => {
  it('is written when the app closes, and not per request', async () => {
    const shell = await startShell({ routes });
    const key = await shell.client('shop');
    const lastUsed = async (): Promise<Date | null> => {
      const { rows } = await shell.database.pool.query(`select last_used_at from api_key`);
      return rows[0].last_used_at;
    };
    await request(shell.url).get('/read').set('Authorization', `Bearer ${key}`).expect(200);
    expect(await lastUsed()).toBeNull();
    await shell.app.close();
    expect(await lastUsed()).toBeInstanceOf(Date);
    await shell.close();
  });
});

describe('while the database is away', () => {
  it('the answer is 503, never 401', async () => {
    const shell = await startShell({ routes, address: addressOf('postgres://nobody@127.0.0.1:1/nothing') });
    const answer = await request(shell.url)
      .get('/read')
      .set('Authorization', `Bearer oncepay_sk_${'A'.repeat(43)}`)
      .expect(503);
    expect(answer.body.code).toBe('unavailable');
    expect(answer.headers['retry-after']).toBe('1');
    expect(answer.headers['www-authenticate']).toBeUndefined();
    await request(shell.url).get('/read').expect(401);
    await shell.close();
  });
});
