import { readFileSync } from 'node:fs';
import Stripe from 'stripe';
import { expect, it } from 'vitest';
import { EVENTS_TO_SUBSCRIBE } from '../../src/providers/stripe/webhooks.js';

const page = readFileSync(new URL('../../docs/stripe.md', import.meta.url), 'utf8');

it('docs/stripe.md lists the events that the adapter reads, and the API version of its SDK', () => {
  const listed = page.match(/^(?:payment_intent|refund)\.\w+$/gm);
  expect(listed).toEqual([...EVENTS_TO_SUBSCRIBE]);
  expect(page).toContain(Stripe.API_VERSION);
});
