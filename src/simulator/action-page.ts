import type { SimulatorRequest } from './api-routes.js';
import { Refusal } from './errors.js';
import type { Provider } from './provider.js';
import type { PaymentRecord } from './records.js';
import { complete } from './sandbox-routes.js';

export interface Page {
  readonly status: number;
  readonly html: string;
  /** Where the browser goes next. */
  readonly location: string | null;
}

const PATH = /^\/_sandbox\/actions\/([^/]+)$/;

/** Where `next_action` sends the customer: a page with two buttons that end the open action. Null: another path. */
export function actionPage(provider: Provider, request: SimulatorRequest): Page | null {
  const id = PATH.exec(request.path)?.[1];
  if (id === undefined) return null;
  const payment = provider.store.payments.get(id);
  if (!payment) throw new Refusal(404, 'not_found', 'no such payment');
  if (request.method === 'GET') return { status: 200, html: render(payment), location: null };
  if (request.method !== 'POST') throw new Refusal(405, 'method_not_allowed', 'GET or POST');
  const result = new URLSearchParams(request.body.toString('utf8')).get('result');
  if (result !== 'succeeded' && result !== 'failed') throw new Refusal(400, 'invalid_request', 'succeeded or failed');
  const after = complete(provider, payment, result);
  const location = after.return_url !== null && /^https?:/.test(after.return_url) ? after.return_url : request.path;
  return { status: 303, html: '', location };
}

function render(payment: PaymentRecord): string {
  const what = `${payment.amount_minor} minor units of ${payment.currency}`;
  const buttons = ['succeeded', 'failed'].map((result) => `<button name="result" value="${result}">${result}</button>`);
  const form = payment.status === 'requires_action' ? `<form method="post">${buttons.join(' ')}</form>` : '';
  const text = `<h1>Sandbox</h1><p>Payment of ${what}: ${payment.status}</p>${form}`;
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Sandbox</title><body>${text}</body></html>`;
}
