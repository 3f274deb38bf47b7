import type { FastifyInstance, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import type { AuthenticatedClient, KeyDirectory } from '../clients/directory.js';
import { isWellFormedApiKey } from '../clients/api-key.js';
import type { LastUse } from '../clients/last-use.js';
import { allows } from '../clients/scopes.js';
import { OncepayError } from '../domain/errors.js';
import { isRepeated } from './body-parser.js';
import './request.js';

export interface AuthOptions {
  readonly directory: Pick<KeyDirectory, 'find'>;
  readonly lastUse: Pick<LastUse, 'touch'>;
  /** Told of each failed authentication. May throw what is answered instead of 401. */
  readonly onFailure: (request: FastifyRequest) => Promise<void>;
}

const BEARER = /^bearer +(\S+)$/i;

/**
 * Authentication and scopes for every route that is not public. Nothing is read of the body before. A database that is
 * away is 503: whether a key is valid is not known then, and 401 would tell a client to throw its key away.
 */
export const auth = fastifyPlugin(async function auth(app: FastifyInstance, options: AuthOptions) {
  app.decorateRequest('client', null);
  app.addHook('onRequest', (request, _reply, done) => {
    if (request.routeOptions.config.public === true) {
      done();
      return;
    }
    const key = apiKey(request);
    if (key === null) {
      refuse(request, done, NO_KEY);
      return;
    }
    const found = options.directory.find(key);
    // Without a promise where the key is known: that is nearly every request.
    if (!(found instanceof Promise)) {
      done(admit(request, found));
      return;
    }
    found.then(
      (client) => (client === null ? refuse(request, done, UNKNOWN_KEY) : done(admit(request, client))),
      (error: unknown) => done(error as Error),
    );
  });

  function admit(request: FastifyRequest, client: AuthenticatedClient): OncepayError | undefined {
    request.client = client;
    options.lastUse.touch(client.api_key_id);
    const { scope } = request.routeOptions.config;
    if (scope !== undefined && allows(client.scopes, scope)) return undefined;
    return new OncepayError('forbidden', `This needs the scope ${scope ?? '(none)'}, which the client does not have.`);
  }

  function refuse(request: FastifyRequest, done: (error: Error) => void, detail: string): void {
    options.onFailure(request).then(
      () => done(new OncepayError('unauthenticated', detail)),
      (error: unknown) => done(error as Error),
    );
  }
});

const NO_KEY = 'Send exactly one header "Authorization: Bearer <api key>".';
const UNKNOWN_KEY = 'The API key is unknown, expired or revoked.';

/** The key that a request shows; null where there is not exactly one that could be a key. */
function apiKey(request: FastifyRequest): string | null {
  const { authorization } = request.headers;
  if (authorization === undefined || isRepeated(request, 'authorization')) return null;
  const key = BEARER.exec(authorization)?.[1];
  return key !== undefined && isWellFormedApiKey(key) ? key : null;
}
