import { createHash } from 'node:crypto';
import type { ChargeDetails } from './decision.js';
import { Refusal } from './errors.js';
import { canonicalText, Fields, invalid, oneParameter, parseObject } from './http.js';
import type { Answer, KeyedRequest, Provider, Silence } from './provider.js';
import type { CallRecord, MoneyOperation } from './records.js';
import { paymentView, refundView } from './views.js';

/** A request to the simulator, read whole. */
export interface SimulatorRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly idempotency_key: string | null;
  readonly body: Buffer;
  /** `http://host:port` as the caller named it. */
  readonly base_url: string;
  /** Whether the caller is still there to be answered. */
  isOpen(): boolean;
}

type Target = { readonly operation: CallRecord['operation']; readonly id: string | null; readonly isRefund: boolean };

/** The provider's own API. Null: no such route. Every request is recorded, also those that are refused. */
export async function apiRoute(provider: Provider, request: SimulatorRequest): Promise<Answer | Silence | null> {
  const target = findTarget(request);
  if (!target) return null;
  const number = provider.store.called(describe(provider, request, target));
  let answer: number | 'silent' = 'silent';
  try {
    const run = target.operation === 'retrieve' ? retrieve : move;
    const result = await run(provider, request, target);
    if (typeof result !== 'string') answer = result.status;
    return result;
  } catch (error) {
    answer = error instanceof Refusal ? error.status : 500;
    throw error;
  } finally {
    provider.store.answered(number, request.isOpen() ? answer : 'silent');
  }
}

function findTarget({ method, path }: SimulatorRequest): Target | null {
  const [first, id = null, last, ...more] = path.split('/').slice(1);
  if (more.length > 0 || id === '' || (first !== 'payments' && first !== 'refunds')) return null;
  if (method === 'GET' && last === undefined) return { operation: 'retrieve', id, isRefund: first === 'refunds' };
  if (method !== 'POST' || first !== 'payments') return null;
  if (id === null) return { operation: 'charge', id, isRefund: false };
  const operation = ({ capture: 'capture', cancel: 'cancel', refunds: 'refund' } as const)[last ?? ''];
  return operation ? { operation, id, isRefund: false } : null;
}

/** What the list of calls shows of a request, as far as it can be read. */
function describe(
  provider: Provider,
  request: SimulatorRequest,
  target: Target,
): Omit<CallRecord, 'number' | 'answer'> {
  const { operation, id, isRefund } = target;
  const fields = operation === 'retrieve' ? {} : readLeniently(request.body);
  const payment = id !== null && !isRefund ? provider.store.payments.get(id) : undefined;
  const key = operation === 'retrieve' ? null : request.idempotency_key;
  const named = textOrNull(fields.reference) ?? request.query.get('reference');
  const known = operation === 'retrieve' ? (payment?.reference ?? null) : operation === 'refund' ? null : key;
  return {
    operation,
    idempotency_key: key,
    reference: named ?? known,
    amount_minor: typeof fields.amount_minor === 'number' ? fields.amount_minor : null,
    currency: textOrNull(fields.currency) ?? (operation === 'retrieve' ? null : (payment?.currency ?? null)),
  };
}

function readLeniently(body: Buffer): Record<string, unknown> {
  try {
    return parseObject(body);
  } catch {
    return {};
  }
}

function textOrNull(value: unknown): string | null {
  return typeof value === 'string' ? value.slice(0, 255) : null;
}

async function move(provider: Provider, request: SimulatorRequest, target: Target): Promise<Answer | Silence> {
  const { idempotency_key: key, method, path, body } = request;
  if (key === null || key === '' || key.length > 255) throw invalid('Idempotency-Key must have 1 to 255 characters');
  const operation = target.operation as MoneyOperation;
  const read = operation === 'charge' ? readCharge(request) : readOther(request, operation, key);
  const text = `${method} ${path}\n${canonicalText(parseObject(body))}`;
  const fingerprint = createHash('sha256').update(text).digest('base64');
  return provider.run({ operation, key, fingerprint, payment_id: target.id, ...read });
}

type Read = Pick<KeyedRequest, 'amount_minor' | 'reference' | 'charge'>;

function readCharge({ body, base_url }: SimulatorRequest): Read {
  const known = ['amount_minor', 'currency', 'payment_method', 'capture', 'reference', 'metadata', 'return_url'];
  const fields = Fields.parse(body, known);
  const amount_minor = fields.optionalAmount('amount_minor');
  if (amount_minor === null) throw invalid('amount_minor is missing');
  const currency = fields.string('currency', 3);
  if (!/^[A-Z]{3}$/.test(currency)) throw invalid('currency must be three capital letters');
  const charge: ChargeDetails = {
    currency,
    capture: fields.oneOf('capture', ['automatic', 'manual'], 'automatic'),
    payment_method: fields.optionalString('payment_method'),
    return_url: fields.optionalString('return_url', 2048),
    metadata: fields.pairs('metadata'),
    action_url: `${base_url}/_sandbox/actions/`,
  };
  return { amount_minor, reference: fields.string('reference'), charge };
}

/** Captures and cancels have no reference of their own: their key names them. */
function readOther({ body }: SimulatorRequest, operation: MoneyOperation, key: string): Read {
  const known = { charge: [], capture: ['amount_minor'], cancel: [], refund: ['amount_minor', 'reference'] }[operation];
  const fields = Fields.parse(body, known);
  const amount_minor = fields.optionalAmount('amount_minor');
  const reference = operation === 'refund' ? fields.optionalString('reference') : key;
  return { amount_minor, reference, charge: null };
}

async function retrieve(provider: Provider, request: SimulatorRequest, target: Target): Promise<Answer> {
  const { store } = provider;
  if (target.id !== null) {
    const refund = target.isRefund ? store.refunds.get(target.id) : undefined;
    const payment = target.isRefund ? undefined : store.payments.get(target.id);
    if (refund) return { status: 200, body: refundView(refund) };
    if (payment) return { status: 200, body: paymentView(payment) };
    throw new Refusal(404, 'not_found', target.isRefund ? 'no such refund' : 'no such payment');
  }
  const reference = oneParameter(request.query, 'reference');
  const now_ms = Date.now();
  const data = target.isRefund
    ? store
        .refundsByReference(reference)
        .filter((refund) => refund.visible_at_ms <= now_ms)
        .map(refundView)
    : store
        .paymentsByReference(reference)
        .filter((payment) => payment.visible_at_ms <= now_ms)
        .map(paymentView);
  return { status: 200, body: { data } };
}
