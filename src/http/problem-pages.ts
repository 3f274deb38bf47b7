import { createHash } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { PROBLEMS, type ProblemDefinition } from '../contract/problems.js';
import { ERROR_CODES, OncepayError, type ErrorCode } from '../domain/errors.js';
import { documented } from './openapi-route.js';

const ProblemDescription = z
  .strictObject({
    code: z.enum(ERROR_CODES),
    status: z.int().min(400).max(599),
    title: z.string(),
    meaning: z.string().meta({ description: 'What it means.' }),
    advice: z.string().meta({ description: 'What a caller does next.' }),
    retry: z.enum(['yes', 'after_correction', 'no']).meta({ description: 'Whether sending again helps.' }),
    retry_key: z.enum(['same', 'new', 'none']).meta({ description: 'With which idempotency key.' }),
  })
  .meta({ id: 'ProblemDescription', description: 'What a problem code means and what to do.' });

const ProblemDescriptionList = z
  .strictObject({ data: z.array(ProblemDescription) })
  .meta({ id: 'ProblemDescriptionList', description: 'Every problem code.' });

const STYLE =
  'body{font:16px/1.5 system-ui,sans-serif;max-width:42em;margin:3em auto;padding:0 1em;color:#1c1e21;background:#fff}' +
  'h1{font-size:1.5em}h2{font-size:1em;margin-bottom:0}p{margin-top:.25em}code{background:#f0f1f3;padding:.1em .3em}' +
  'a{color:#0b57d0}td{padding:.25em 1em .25em 0;vertical-align:top}';

/** Of the one inline style, for the pages' content security policy. */
export const PROBLEM_PAGE_STYLE_HASH = createHash('sha256').update(STYLE).digest('base64');

const description =
  'A page for people, JSON for programs, by `Accept`. The `type` of every problem leads here, so that the code is explained where it is met.';

/** `/problems` and `/problems/{code}`, made from the one table of problems. */
export async function problemPages(app: FastifyInstance): Promise<void> {
  app.get(
    '/problems',
    {
      config: {
        page: true,
        ...documented({
          public: true,
          summary: 'List every problem code',
          operation_id: 'listProblems',
          tag: 'Help',
          description,
          answers: {
            200: { description: 'All codes.', schema: ProblemDescriptionList, text_types: ['text/html'] },
          },
          problems: ['validation_failed'],
        }),
      },
    },
    (request, reply) => answer(request, reply, listPage, { data: ERROR_CODES.map(describe) }),
  );

  app.get<{ Params: { code: string } }>(
    '/problems/:code',
    {
      config: {
        page: true,
        ...documented({
          public: true,
          summary: 'Explain a problem code',
          operation_id: 'getProblem',
          tag: 'Help',
          description,
          path_parameters: { code: { description: 'The `code` of a problem.', example: 'idempotency_key_reused' } },
          answers: { 200: { description: 'What it means.', schema: ProblemDescription, text_types: ['text/html'] } },
          problems: ['not_found'],
        }),
      },
    },
    (request, reply) => {
      const { code } = request.params;
      if (!isErrorCode(code))
        throw new OncepayError('not_found', 'There is no such problem code; /problems lists all.');
      return answer(request, reply, problemPage, describe(code));
    },
  );
}

type Description = ProblemDefinition & { readonly code: ErrorCode };

function describe(code: ErrorCode): Description {
  return { code, ...PROBLEMS[code] };
}

function isErrorCode(text: string): text is ErrorCode {
  return (ERROR_CODES as readonly string[]).includes(text);
}

function answer<T>(request: FastifyRequest, reply: FastifyReply, page: (data: T) => string, data: T): FastifyReply {
  reply.header('vary', 'accept');
  if (!prefersHtml(request.headers.accept ?? '')) return reply.send(data);
  return reply.header('content-type', 'text/html; charset=utf-8').send(page(data));
}

/** Whoever names HTML and likes it at least as well as JSON is a browser; a wildcard is a program. */
export function prefersHtml(accept: string): boolean {
  const quality = (type: string): number => {
    const range = accept.split(',').find((part) => part.trim().toLowerCase().split(';')[0]?.trim() === type);
    if (range === undefined) return 0;
    const q = /;\s*q=([01](?:\.\d{0,3})?)\s*(?:;|$)/i.exec(range)?.[1];
    return q === undefined ? 1 : Number(q);
  };
  const html = quality('text/html');
  return html > 0 && html >= Math.max(quality('application/json'), quality('application/problem+json'));
}

const RETRY_TEXT: Readonly<Record<ProblemDefinition['retry'], string>> = {
  yes: 'Yes: send the same request again.',
  after_correction: 'Only after a correction.',
  no: 'No.',
};
const RETRY_KEY_TEXT: Readonly<Record<ProblemDefinition['retry_key'], string>> = {
  same: 'The same idempotency key.',
  new: 'A new idempotency key.',
  none: 'Idempotency keys have nothing to do with it.',
};

function problemPage({ code, status, title, meaning, advice, retry, retry_key }: Description): string {
  return page(
    title,
    `<p><code>${code}</code>, HTTP status ${status}</p>
<h2>What it means</h2>
<p>${prose(meaning)}</p>
<h2>What to do</h2>
<p>${prose(advice)}</p>
<h2>Does sending again help?</h2>
<p>${RETRY_TEXT[retry]}</p>
<h2>With which key?</h2>
<p>${RETRY_KEY_TEXT[retry_key]}</p>
<p><a href="/problems">All problems</a> · <a href="/docs">API documentation</a></p>`,
  );
}

function listPage({ data }: { readonly data: readonly Description[] }): string {
  const rows = data.map(
    ({ code, status, title }) =>
      `<tr><td>${status}</td><td><a href="/problems/${code}"><code>${code}</code></a></td><td>${prose(title)}</td></tr>`,
  );
  return page('Problems', `<table>\n${rows.join('\n')}\n</table>\n<p><a href="/docs">API documentation</a></p>`);
}

function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escape(title)} · Oncepay</title>
<style>${STYLE}</style></head>
<body>
<h1>${prose(title)}</h1>
${body}
</body>
</html>
`;
}

/** A text of the table: escaped, with what stands between backticks as code. */
function prose(text: string): string {
  return escape(text).replace(/`([^`]*)`/g, '<code>$1</code>');
}

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
