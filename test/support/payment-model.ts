/**
 * A small model of one payment: what each request is answered, and what moves, when nothing runs beside it. It shares no
 * code with the service. Amounts are in minor units.
 */
export type Status = 'none' | 'requires_action' | 'authorized' | 'succeeded' | 'failed' | 'canceled';

export interface Model {
  readonly status: Status;
  readonly amount: number;
  readonly manual: boolean;
  readonly captured: number;
  readonly refunded: number;
  /** Payment methods that this payment was charged with: with one of them a charge is the same command. */
  readonly methods: readonly string[];
  /** What moved at the provider. */
  readonly moved: readonly string[];
}

/** How the provider goes about it. The last four decide the outcome; all others end in success. */
export const ENDS_WELL = [
  'success',
  'slow_20',
  'slow_answer_20',
  'commit_then_reset',
  'commit_then_error',
  'late_commit_40',
  'unavailable_once',
  'key_in_use_once',
  'webhook_first',
  'webhook_duplicates',
  'webhook_reordered',
  'async_success_40',
] as const;
export const ENDS_BADLY = ['decline_insufficient_funds', 'async_failure_40'] as const;
export type Behaviour = (typeof ENDS_WELL)[number] | (typeof ENDS_BADLY)[number] | 'status_400_once';
export type Method = Behaviour | 'requires_action' | 'decline_then_succeed_40';

export type Ask =
  | { readonly kind: 'charge'; readonly method: Method }
  | { readonly kind: 'capture'; readonly amount: number | null; readonly behaviour: Behaviour }
  | { readonly kind: 'cancel'; readonly behaviour: Behaviour }
  | { readonly kind: 'refund'; readonly amount: number | null; readonly behaviour: Behaviour };

export interface Expected {
  readonly status: number;
  /** Of a refusal. */
  readonly code?: string;
  /** Of the payment or refund in the answer. */
  readonly resource?: string;
  /** The answer stays with its key; a refusal for the moment does not. */
  readonly stays: boolean;
}

export interface Step {
  readonly expected: Expected;
  readonly after: Model;
  /** It reached the provider, so that a behaviour that was asked for there is used up. */
  readonly sent: boolean;
}

export function newModel(amount: number, manual: boolean): Model {
  return { status: 'none', amount, manual, captured: 0, refunded: 0, methods: [], moved: [] };
}

/** What a request is answered, and the payment afterwards, when it has come to its end. */
export function step(model: Model, ask: Ask): Step {
  switch (ask.kind) {
    case 'charge':
      return charge(model, ask.method);
    case 'capture':
      return capture(model, ask);
    case 'cancel':
      return cancel(model, ask);
    case 'refund':
      return refund(model, ask);
  }
}

function charge(model: Model, method: Method): Step {
  if (model.status !== 'none' && model.status !== 'failed') {
    if (!model.methods.includes(method)) return refused(model, 'external_payment_id_taken');
    return { expected: { status: 200, resource: model.status, stays: true }, after: model, sent: false };
  }
  const answered = { ...model, methods: [...model.methods, method], status: chargeEnd(model, method) };
  const eventually = method === 'decline_then_succeed_40' ? held(model) : answered.status;
  const isTaken = eventually === 'succeeded' || eventually === 'authorized';
  const movement = `${model.manual ? 'authorization' : 'charge'} ${model.amount}`;
  const after: Model = {
    ...answered,
    status: eventually,
    captured: eventually === 'succeeded' ? model.amount : 0,
    moved: isTaken ? [...model.moved, movement] : model.moved,
  };
  return { expected: { status: 201, resource: answered.status, stays: true }, after, sent: true };
}

const held = (model: Model): Status => (model.manual ? 'authorized' : 'succeeded');

function chargeEnd(model: Model, method: Method): Status {
  if (method === 'requires_action') return 'requires_action';
  return endsWell(method) ? held(model) : 'failed';
}

export function endsWell(behaviour: Method): boolean {
  return (ENDS_WELL as readonly string[]).includes(behaviour);
}

function capture(model: Model, { amount, behaviour }: Extract<Ask, { kind: 'capture' }>): Step {
  if (model.status !== 'authorized') return wrongState(model);
  const asked = amount ?? model.amount;
  if (asked > model.amount) return refused(model, 'amount_exceeds_remaining');
  if (endsWell(behaviour)) {
    const moved = [...model.moved, `capture ${asked}`];
    return done({ ...model, status: 'succeeded', captured: asked, moved });
  }
  // What fails in the end takes the authorization with it; what is refused at once leaves it.
  const after: Model = behaviour === 'async_failure_40' ? { ...model, status: 'failed' } : model;
  return { ...refused(after, 'invalid_payment_state'), sent: true };
}

function cancel(model: Model, { behaviour }: Extract<Ask, { kind: 'cancel' }>): Step {
  if (model.status !== 'authorized' && model.status !== 'requires_action') return wrongState(model);
  if (!endsWell(behaviour)) return { ...refused(model, 'invalid_payment_state'), sent: true };
  const moved = model.status === 'authorized' ? [...model.moved, `cancel ${model.amount}`] : model.moved;
  return done({ ...model, status: 'canceled', moved });
}

function refund(model: Model, { amount, behaviour }: Extract<Ask, { kind: 'refund' }>): Step {
  if (model.status !== 'succeeded') return wrongState(model, true);
  const left = model.captured - model.refunded;
  const asked = amount ?? left;
  if (asked > left || asked === 0) return refused(model, 'amount_exceeds_remaining');
  if (!endsWell(behaviour)) {
    return { expected: { status: 201, resource: 'failed', stays: true }, after: model, sent: true };
  }
  const after = { ...model, refunded: model.refunded + asked, moved: [...model.moved, `refund ${asked}`] };
  return { expected: { status: 201, resource: 'succeeded', stays: true }, after, sent: true };
}

function done(after: Model): Step {
  return { expected: { status: 200, resource: after.status, stays: true }, after, sent: true };
}

function refused(after: Model, code: string): Step {
  return { expected: { status: 409, code, stays: true }, after, sent: false };
}

/** An open action may still lead to a payment that can be captured or canceled: such a refusal does not stay. */
function wrongState(model: Model, isRefund = false): Step {
  if (model.status === 'none')
    return { expected: { status: 404, code: 'not_found', stays: false }, after: model, sent: false };
  const stays = isRefund || model.status !== 'requires_action';
  return { expected: { status: 409, code: 'invalid_payment_state', stays }, after: model, sent: false };
}
