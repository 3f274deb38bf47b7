import type { FastifyHelmetOptions } from '@fastify/helmet';

const ONE_YEAR_S = 31_536_000;

/**
 * On every answer that is data: nothing in it may run, be framed, be embedded elsewhere, or be kept by a cache. Written
 * out rather than computed per request: these stand on the hot path.
 */
export const API_HEADERS: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'strict-transport-security': `max-age=${ONE_YEAR_S}; includeSubDomains`,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

/**
 * For pages: scripts, styles and requests from this very service only, and inline styles only by their hash. Nothing is
 * upgraded to HTTPS by the page, because the service itself may be reached without.
 */
export function pageHeaders(style_hashes: readonly string[]): FastifyHelmetOptions {
  return {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc: ["'self'", ...style_hashes.map((hash) => `'sha256-${hash}'`)],
        imgSrc: ["'self'", 'data:'],
        connectSrc: ["'self'"],
        baseUri: ["'none'"],
        formAction: ["'none'"],
        frameAncestors: ["'none'"],
      },
    },
    strictTransportSecurity: { maxAge: ONE_YEAR_S },
    xFrameOptions: { action: 'deny' },
  };
}
