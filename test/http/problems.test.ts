import type { FastifyPluginAsync } from 'fastify';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PROBLEMS } from '../../src/contract/problems.js';
import { ERROR_CODES } from '../../src/domain/errors.js';
import { prefersHtml } from '../../src/http/problem-pages.js';
import { RawConnection, sendRaw } from '../support/raw-http.js';
import { type Shell, startShell } from '../support/shell.js';

const OPEN = { public: true, openapi: 'hidden' } as const;
const thrown: { error: unknown } = { error: null };

const routes: FastifyPluginAsync = async (app) => {
  app.post('/echo', { config: OPEN }, async (req) => ({ got: req.body === undefined ? 'nothing' : req.body }));
  app.get('/throws', { config: OPEN }, async () => {
    throw thrown.error;
  });
};

let shell: Shell;
beforeAll(async () => {
  shell = await startShell({ routes });
});
afterAll(() => shell.close());

describe('bodies', () => {
  const post = (headers: string, body: string) =>
    sendRaw(shell.url, `POST /echo HTTP/1.1\r\nHost: x\r\n${headers}Content-Length: ${body.length}\r\n\r\n${body}`);

  const accepted: [string, string, string, string][] = [
    ['plain JSON', 'Content-Type: application/json\r\n', '{"a":1}', '{"got":{"a":1}}'],
    ['charset', 'Content-Type: application/json; charset=utf-8\r\n', '{"a":1}', '{"got":{"a":1}}'],
    ['charset in capitals, quoted', 'Content-Type: Application/JSON;Charset="UTF-8"\r\n', '1', '{"got":1}'],
    ['no body and no type', '', '', '{"got":"nothing"}'],
    ['no body with a type', 'Content-Type: application/json\r\n', '', '{"got":"nothing"}'],
  ];
  it.each(accepted)('takes %s', async (_name, headers, body, answer) => {
    expect(await post(headers, body)).toMatchObject({ status: 200, body: answer });
  });

  const refused: [string, string, string, number, string][] = [
    ['another type', 'Content-Type: text/plain\r\n', '{}', 415, 'unsupported_media_type'],
    ['another JSON type', 'Content-Type: application/vnd.api+json\r\n', '{}', 415, 'unsupported_media_type'],
    ['a type that only begins alike', 'Content-Type: application/jsonx\r\n', '{}', 415, 'unsupported_media_type'],
    ['a form', 'Content-Type: application/x-www-form-urlencoded\r\n', 'a=1', 415, 'unsupported_media_type'],
    ['another charset', 'Content-Type: application/json; charset=latin1\r\n', '{}', 415, 'unsupported_media_type'],
    ['a further parameter', 'Content-Type: application/json; v=1\r\n', '{}', 415, 'unsupported_media_type'],
    [
      'two charsets',
      'Content-Type: application/json; charset=utf-8; charset=x\r\n',
      '{}',
      415,
      'unsupported_media_type',
    ],
    [
      'two type lines',
      'Content-Type: application/json\r\nContent-Type: text/plain\r\n',
      '{}',
      415,
      'unsupported_media_type',
    ],
    ['no type', '', '{}', 415, 'unsupported_media_type'],
    ['a type without a body', 'Content-Type: text/plain\r\n', '', 415, 'unsupported_media_type'],
    ['an invalid type', 'Content-Type: ;;\r\n', '{}', 415, 'unsupported_media_type'],
    ['gzip', 'Content-Type: application/json\r\nContent-Encoding: gzip\r\n', '{}', 415, 'unsupported_media_type'],
    [
      'identity',
      'Content-Type: application/json\r\nContent-Encoding: identity\r\n',
      '{}',
      415,
      'unsupported_media_type',
    ],
    ['a broken body', 'Content-Type: application/json\r\n', '{"a":', 400, 'malformed_body'],
    ['bytes that are no UTF-8', 'Content-Type: application/json\r\n', '"\xff"', 400, 'malformed_body'],
    ['a member twice', 'Content-Type: application/json\r\n', '{"a":1,"a":2}', 400, 'malformed_body'],
    ['a prototype', 'Content-Type: application/json\r\n', '{"__proto__":1,"__proto__":1}', 400, 'malformed_body'],
    ['65 KB', 'Content-Type: application/json\r\n', `"${'x'.repeat(65 * 1024)}"`, 413, 'body_too_large'],
  ];
  it.each(refused)('refuses %s', async (_name, headers, body, status, code) => {
    const answer = await post(headers, body);
    expect(answer.status).toBe(status);
    expect(JSON.parse(answer.body)).toMatchObject({ code, status });
  });

  it('takes exactly 64 KB', async () => {
    const answer = await post('Content-Type: application/json\r\n', `"${'x'.repeat(64 * 1024 - 2)}"`);
    expect(answer.status).toBe(200);
  });

  it('refuses 65 KB in chunks of unknown number', async () => {
    const connection = await RawConnection.open(shell.url);
    connection.write(
      'POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
    );
    connection.write(`10400\r\n${'x'.repeat(0x10400)}\r\n`);
    const answer = await connection.answer();
    expect(answer.status).toBe(413);
    connection.destroy();
  });

  it('goes on with the connection after a body that was too large', async () => {
    const connection = await RawConnection.open(shell.url);
    const large = 'x'.repeat(70 * 1024);
    const head = 'POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
    connection.write(`${head}Content-Length: ${large.length}\r\n\r\n${large}`);
    expect((await connection.answer()).status).toBe(413);
    connection.write(`${head}Content-Length: 2\r\n\r\n{}`);
    expect((await connection.answer()).status).toBe(200);
    connection.destroy();
  });

  it('answers 400 to a chunk that is none, and ends the connection', async () => {
    const connection = await RawConnection.open(shell.url);
    connection.write(
      'POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
    );
    connection.write('zz\r\n{}\r\n');
    const answer = await connection.answer();
    expect(answer.status).toBe(400);
    expect(JSON.parse(answer.body).request_id).toBe(answer.headers['request-id']);
    await connection.end();
  });

  it('ignores a body on GET', async () => {
    const answer = await sendRaw(shell.url, 'GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}');
    expect(answer.status).toBe(200);
  });
});

describe('what is thrown', () => {
  const unavailable: [string, unknown][] = [
    ['a refused connection', Object.assign(new Error('connect'), { code: 'ECONNREFUSED' })],
    ['a server that ends', Object.assign(new Error('terminating connection'), { code: '57P01' })],
    ['too many connections', Object.assign(new Error('sorry'), { code: '53300' })],
    ['a full pool', new Error('timeout exceeded when trying to connect')],
    ['one inside another', new Error('outer', { cause: Object.assign(new Error('x'), { code: '08006' }) })],
  ];
  it.each(unavailable)('is 503 for %s', async (_name, error) => {
    thrown.error = error;
    const answer = await request(shell.url).get('/throws').expect(503);
    expect(answer.body.code).toBe('unavailable');
    expect(answer.headers['retry-after']).toBe('1');
  });

  const defects: [string, unknown][] = [
    ['a violated constraint', Object.assign(new Error('dup'), { code: '23505' })],
    ['a type error', new TypeError('x is not a function')],
    ['an error of an SDK with a status of its own', Object.assign(new Error('theirs'), { statusCode: 400 })],
    ['a text', 'oops'],
    ['nothing', undefined],
    ['null', null],
  ];
  it.each(defects)('is 500 for %s', async (_name, error) => {
    thrown.error = error;
    const answer = await request(shell.url).get('/throws').expect(500);
    expect(answer.body).toMatchObject({ code: 'internal', type: '/problems/internal' });
  });
});

describe('problem pages', () => {
  it.each(ERROR_CODES)('explain %s to people and to programs', async (code) => {
    const data = await request(shell.url).get(`/problems/${code}`).expect(200).expect('Vary', 'accept');
    expect(data.body).toEqual({ code, ...PROBLEMS[code] });
    const page = await request(shell.url).get(`/problems/${code}`).set('Accept', 'text/html').expect(200);
    expect(page.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(page.text).toContain(`<code>${code}</code>, HTTP status ${PROBLEMS[code].status}`);
  });

  it('have a list', async () => {
    const data = await request(shell.url).get('/problems').expect(200);
    expect(data.body.data.map((problem: { code: string }) => problem.code)).toEqual([...ERROR_CODES]);
    const page = await request(shell.url).get('/problems').set('Accept', 'text/html').expect(200);
    expect(page.text).toContain('href="/problems/not_found"');
  });

  it.each(['nothing', 'toString', '__proto__', '%3Cscript%3E', 'NOT_FOUND'])('are 404 for %s', async (code) => {
    const answer = await request(shell.url).get(`/problems/${code}`).set('Accept', 'text/html').expect(404);
    expect(answer.body.code).toBe('not_found');
  });

  it('let nothing run, be framed, or come from elsewhere', async () => {
    const { headers, text } = await request(shell.url).get('/problems').set('Accept', 'text/html');
    expect(headers['content-security-policy']).toMatch(
      /^default-src 'none';script-src 'self';style-src 'self' 'sha256-/,
    );
    expect(headers['content-security-policy']).not.toContain('unsafe');
    expect(text).not.toMatch(/https?:/);
  });

  it.each([
    ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', true],
    ['text/html', true],
    ['application/json, text/html', true],
    ['text/html;q=0.5, application/json', false],
    ['text/html;q=0.5, application/json;q=0.4', true],
    ['text/html;q=0', false],
    ['text/htmlx', false],
    ['*/*', false],
    ['', false],
  ])('prefersHtml(%j) is %s', (accept, expected) => {
    expect(prefersHtml(accept)).toBe(expected);
  });
});
