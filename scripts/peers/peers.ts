/** The programs that others wrote to stand in for Stripe: which, in which version, and where they are kept. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const FOLDER = fileURLToPath(new URL('../../.cache/peers', import.meta.url));

export interface Peer {
  readonly name: string;
  /** What it is made with, as a command that tells its version. */
  readonly needs: readonly [command: string, argument: string];
  /** There when it is installed: the version is in its path, so that another version is another peer. */
  readonly program: string;
  /** Commands that install it. */
  readonly install: readonly { command: string; arguments: readonly string[]; environment: Record<string, string> }[];
}

const STRIPE_MOCK_VERSION = 'v0.203.0';
const STRIPE_MOCK_FOLDER = `${FOLDER}/stripe-mock-${STRIPE_MOCK_VERSION}`;

/** github.com/stripe/stripe-mock: Stripe's own, checks requests against its OpenAPI description; keeps nothing. */
export const STRIPE_MOCK: Peer = {
  name: 'stripe-mock',
  needs: ['go', 'version'],
  program: `${STRIPE_MOCK_FOLDER}/stripe-mock`,
  install: [
    {
      command: 'go',
      arguments: ['install', `github.com/stripe/stripe-mock@${STRIPE_MOCK_VERSION}`],
      environment: { GOBIN: STRIPE_MOCK_FOLDER },
    },
  ],
};

const LOCALSTRIPE_VERSION = '1.15.10';
const LOCALSTRIPE_FOLDER = `${FOLDER}/localstripe-${LOCALSTRIPE_VERSION}`;

/** PyPI's localstripe: keeps charges, captures and refunds, signs webhooks; knows few parameters. */
export const LOCALSTRIPE: Peer = {
  name: 'localstripe',
  needs: ['python3', '--version'],
  program: `${LOCALSTRIPE_FOLDER}/bin/localstripe`,
  install: [
    { command: 'python3', arguments: ['-m', 'venv', LOCALSTRIPE_FOLDER], environment: {} },
    {
      command: `${LOCALSTRIPE_FOLDER}/bin/pip`,
      arguments: ['install', '--quiet', '--disable-pip-version-check', `localstripe==${LOCALSTRIPE_VERSION}`],
      environment: {},
    },
  ],
};

/** The interpreter of localstripe's own folder. */
export const LOCALSTRIPE_PYTHON = `${LOCALSTRIPE_FOLDER}/bin/python`;

export function isInstalled(peer: Peer): boolean {
  return existsSync(peer.program);
}

/** Whether the run has to have every peer, or may leave one out and say so. */
export function mustHavePeers(): boolean {
  return process.env.CI === 'true';
}
