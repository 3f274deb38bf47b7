import type { FastifyPluginAsync } from 'fastify';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type Shell, startShell } from '../support/shell.js';

const routes: FastifyPluginAsync = async (app) => {
  app.get('/read', { config: { scope: 'payments:read', openapi: 'hidden' } }, async () => ({}));
  app.put('/write', { config: { scope: 'payments:write', openapi: 'hidden' } }, async () => ({}));
};
const PER_SECOND = 2;
/** Far more than the limit, also where the machine is so busy that they take seconds. */
const MANY = 20;
const SOON = { timeout: 15_000, interval: 50 };

describe('the limit per client', () => {
  let shell: Shell;
  beforeAll(async () => {
    shell = await startShell({ routes, env: { RATE_LIMIT_PER_SECOND: String(PER_SECOND) } });
  });
  afterAll(() => shell.close());

  const read = (key: string) => request(shell.url).get('/read').set('Authorization', `Bearer ${key}`);
  const sendMany = (key: string) => Promise.all(Array.from({ length: MANY }, () => read(key)));

  it('is told by the RateLimit headers', async () => {
    const key = await shell.client('polite');
    const first = await read(key).expect(200);
    expect(first.headers).toMatchObject({
      'ratelimit-limit': '2',
      'ratelimit-remaining': '1',
      'ratelimit-reset': '1',
    });
  });

  it('is 429 beyond it, over all routes, with Retry-After, and open again after it', async () => {
    const key = await shell.client('eager');
    const started = performance.now();
    const answers = await sendMany(key);
    const seconds = Math.ceil((performance.now() - started) / 1000);
    const refused = answers.filter((answer) => answer.status === 429);
    expect(answers.filter((answer) => answer.status === 200).length).toBeLessThanOrEqual((seconds + 1) * PER_SECOND);
    expect(refused.length).toBeGreaterThan(0);
    expect(refused[0]?.body.code).toBe('rate_limited');
    expect(refused[0]?.headers).toMatchObject({ 'retry-after': '1', 'ratelimit-remaining': '0' });
    // Before the body: its type does not matter any more.
    await vi.waitFor(async () => {
      await sendMany(key);
      await request(shell.url)
        .put('/write')
        .set('Authorization', `Bearer ${key}`)
        .type('text/plain')
        .send('x')
        .expect(429);
    }, SOON);
    await vi.waitFor(() => read(key).expect(200), SOON);
  });

  it('is each client’s own, whatever address it says to come from', async () => {
    const [greedy, modest] = [await shell.client('greedy'), await shell.client('modest')];
    const answers = await Promise.all(
      Array.from({ length: MANY }, (_, i) => read(greedy).set('X-Forwarded-For', `10.0.0.${i}`)),
    );
    expect(answers.some((answer) => answer.status === 429)).toBe(true);
    await read(modest).expect(200);
  });

  it('leaves health, metrics, docs and problem pages alone', async () => {
    for (const path of ['/health/live', '/metrics', '/docs/json', '/problems/not_found']) {
      const answers = await Promise.all(Array.from({ length: MANY }, () => request(shell.url).get(path)));
      expect(answers.map((answer) => answer.status)).toEqual(answers.map(() => 200));
      expect(answers[0]?.headers).not.toHaveProperty('ratelimit-limit');
    }
  });
});

describe('the limit of failed authentications', () => {
  let shell: Shell;
  beforeAll(async () => {
    shell = await startShell({ routes });
  });
  afterAll(() => shell.close());

  it('answers 429 to who guesses keys, and goes on with a valid one from the same address', async () => {
    const key = await shell.client('honest');
    const guess = (i: number) =>
      request(shell.url)
        .get('/read')
        .set('Authorization', `Bearer oncepay_sk_${String(i).padStart(43, '0')}`)
        .set('X-Forwarded-For', `10.0.0.${i}`);
    const statuses: number[] = [];
    for (let i = 0; i < 70; i += 1) statuses.push((await guess(i)).status);
    expect(statuses.slice(0, 60)).toEqual(statuses.slice(0, 60).map(() => 401));
    expect(statuses.slice(60)).toEqual(statuses.slice(60).map(() => 429));
    const refused = await guess(71).expect(429);
    expect(refused.body.code).toBe('rate_limited');
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(1);
    await request(shell.url).get('/read').set('Authorization', `Bearer ${key}`).expect(200);
  });
});

describe('where several processes serve', () => {
  it.each([
    { RATE_LIMIT_PER_SECOND: '5', PROCESSES: '2', share: '2' },
    { RATE_LIMIT_PER_SECOND: '1', PROCESSES: '4', share: '1' },
  ])('each gives its share of both limits: $RATE_LIMIT_PER_SECOND by $PROCESSES', async ({ share, ...env }) => {
    const shell = await startShell({ routes, env });
    try {
      const read = (key: string) => request(shell.url).get('/read').set('Authorization', `Bearer ${key}`);
      const answer = await read(await shell.client('one-of-many')).expect(200);
      expect(answer.headers['ratelimit-limit']).toBe(share);
      const allowed = 60 / Number(env.PROCESSES);
      const statuses: number[] = [];
      for (let i = 0; i <= allowed; i += 1) {
        statuses.push((await read(`oncepay_sk_${String(i).padStart(43, '0')}`)).status);
      }
      expect(statuses).toEqual([...Array.from({ length: allowed }, () => 401), 429]);
    } finally {
      await shell.close();
    }
  });
});
