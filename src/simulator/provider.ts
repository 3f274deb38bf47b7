import { type Behaviour, parseBehaviour } from './behaviour.js';
import { type Decision, type MoneyRequest } from './decision.js';
import { errorBody, Refusal } from './errors.js';
import type { Entry, EventRecord, MoneyOperation, PaymentRecord } from './records.js';
import { decideRefund } from './refund-rules.js';
import { decideCancel, decideCapture, decideCharge, decideScheduled } from './rules.js';
import type { Store } from './store.js';
import type { Timers } from './timers.js';
import { paymentEvents, paymentView, refundView, twinOf } from './views.js';
import type { WebhookSender } from './webhooks.js';

export interface Answer {
  readonly status: number;
  readonly body: unknown;
  readonly isReplay?: boolean;
}
/** No answer: the connection stays open without a word, or is dropped. */
export type Silence = 'hang' | 'reset';

/** A money request with its idempotency key. */
export interface KeyedRequest extends MoneyRequest {
  readonly key: string;
  /** Over method, path and body: what has to be the same when the key comes back. */
  readonly fingerprint: string;
  /** Null: a charge. */
  readonly payment_id: string | null;
}

const DUPLICATES = 3;

/** Runs money requests as their behaviour says, once per idempotency key, and what comes later by itself. */
export class Provider {
  readonly #inFlight = new Map<string, string>();

  constructor(
    readonly store: Store,
    private readonly timers: Timers,
    private readonly sender: WebhookSender | null,
    private readonly log: (line: string) => void,
  ) {
    for (const change of store.scheduled.values()) this.#arm(change.id, change.at_ms);
    for (const event of store.undelivered.values()) sender?.send(event);
  }

  /** @throws Refusal */
  async run(request: KeyedRequest): Promise<Answer | Silence> {
    const known = this.#recall(request);
    if (known) return known;
    const payment = this.#target(request);
    const behaviour = this.#behaviourOf(request, payment);
    if (behaviour.once) throw new Refusal(behaviour.once.status, behaviour.once.code, 'as asked for, this once');
    this.#inFlight.set(request.key, request.fingerprint);
    if (behaviour.late_commit_ms !== null) {
      this.timers.after(behaviour.late_commit_ms, () =>
        this.#deliver(this.#commit(request, behaviour).events, behaviour),
      );
      return 'reset';
    }
    try {
      await this.timers.sleep(behaviour.before_ms);
    } catch (error) {
      this.#inFlight.delete(request.key);
      throw error;
    }
    const { answer, events } = this.#commit(request, behaviour);
    if (behaviour.webhooks === 'first') await this.#deliverInOrder(events);
    else this.#deliver(events, behaviour);
    await this.timers.sleep(behaviour.after_ms);
    return behaviour.answer === 'hang' || behaviour.answer === 'reset' ? behaviour.answer : answer;
  }

  /** Writes what was decided outside of a keyed request, and tells of it. */
  settle(decided: Decision, more: Entry = {}): void {
    const events = this.sender ? (decided.entry.events ?? []) : [];
    this.store.commit({ ...decided.entry, ...more, events });
    this.#deliver(events);
    if (decided.entry.scheduled) this.#arm(decided.entry.scheduled.id, decided.entry.scheduled.at_ms);
  }

  /** Ends at once, in this way, what would have ended by itself. Null: nothing of that kind is open. */
  endNow(payment: PaymentRecord, result: 'succeeded' | 'failed'): PaymentRecord | null {
    const [change] = this.store.scheduledFor(payment.id).filter((open) => open.operation !== 'refund');
    if (!change || payment.status !== 'processing') return null;
    const decided = decideScheduled({ ...change, result }, payment, null, Date.now());
    if (!decided) return null;
    this.settle(decided, { unscheduled: [change.id] });
    return decided.payment;
  }

  /** What an idempotency key that was seen before is answered. */
  #recall(request: KeyedRequest): Answer | null {
    const stored = this.store.keys.get(request.key);
    const fingerprint = stored?.fingerprint ?? this.#inFlight.get(request.key);
    if (fingerprint === undefined) return null;
    if (fingerprint !== request.fingerprint) {
      throw new Refusal(422, 'key_parameters_mismatch', 'this idempotency key was used with other parameters');
    }
    if (!stored) throw new Refusal(409, 'key_in_use', 'a request with this idempotency key is under way');
    return { status: stored.status, body: stored.body, isReplay: true };
  }

  #target(request: KeyedRequest): PaymentRecord | null {
    if (request.payment_id === null) return null;
    const payment = this.store.payments.get(request.payment_id);
    if (!payment) throw new Refusal(404, 'not_found', 'no such payment');
    return payment;
  }

  #behaviourOf(request: KeyedRequest, payment: PaymentRecord | null): Behaviour {
    const word = payment
      ? this.store.takeNext(payment.id, request.operation)
      : (request.charge?.payment_method ?? null);
    const behaviour = parseBehaviour(word, request.operation);
    if (!behaviour)
      throw new Refusal(400, 'payment_method_invalid', `${word ?? ''} is no payment method of the sandbox`);
    if (!behaviour.once || payment) return behaviour;
    const name = request.reference ?? request.key;
    if (this.store.wasShownOnce(name)) return { ...behaviour, once: null };
    this.store.note({ shown_once: name });
    return behaviour;
  }

  /** Decides on the payment as it is at this moment, and writes the change and the key's answer as one entry. */
  #commit(request: KeyedRequest, behaviour: Behaviour): { answer: Answer; events: readonly EventRecord[] } {
    const before = request.payment_id === null ? null : (this.store.payments.get(request.payment_id) ?? null);
    const decided = decide(request, before, behaviour);
    const answer = behaviour.answer === 'error' ? BROKEN : answerTo(request.operation, decided);
    const { key, fingerprint } = request;
    const events = this.sender && !(decided instanceof Refusal) ? this.#eventsOf(decided, before, behaviour) : [];
    const entry = decided instanceof Refusal ? {} : decided.entry;
    this.#inFlight.delete(key);
    this.store.commit({ ...entry, events, key: { key, fingerprint, status: answer.status, body: answer.body } });
    if (entry.scheduled) this.#arm(entry.scheduled.id, entry.scheduled.at_ms);
    return { answer, events };
  }

  /** Out of order, older news comes after newer: what the payment was before. */
  #eventsOf(decided: Decision, before: PaymentRecord | null, behaviour: Behaviour): readonly EventRecord[] {
    const events = decided.entry.events ?? [];
    if (behaviour.webhooks === 'duplicates') return events.flatMap((event) => [event, twinOf(event)]);
    if (behaviour.webhooks !== 'reordered') return events;
    const earlier_ms = Date.now() - 1_000;
    const older = before ? [before] : pastOf(decided.payment);
    return [...events, ...older.flatMap((payment) => paymentEvents(payment, earlier_ms))];
  }

  /** In the background. */
  #deliver(events: readonly EventRecord[], behaviour?: Behaviour): void {
    const sending =
      behaviour?.webhooks === 'reordered' ? this.#deliverInOrder(events) : this.#deliverAtOnce(events, behaviour);
    sending.catch((error: unknown) => this.log(String(error)));
  }

  /** Nobody is told of what is not safe on disk. */
  async #deliverAtOnce(events: readonly EventRecord[], behaviour?: Behaviour): Promise<void> {
    await this.store.synced();
    const times = behaviour?.webhooks === 'duplicates' ? DUPLICATES : 1;
    for (const event of events) for (let n = 0; n < times; n += 1) this.sender?.send(event);
  }

  async #deliverInOrder(events: readonly EventRecord[]): Promise<void> {
    await this.store.synced();
    for (const event of events) await this.sender?.sendFirst(event);
  }

  #arm(change_id: string, at_ms: number): void {
    this.timers.after(at_ms - Date.now(), () => {
      const change = this.store.scheduled.get(change_id);
      const payment = change && this.store.payments.get(change.payment_id);
      if (!payment) return;
      const refund = change.refund_id === null ? null : (this.store.refunds.get(change.refund_id) ?? null);
      const decided = decideScheduled(change, payment, refund, Date.now());
      if (decided) this.settle(decided, { unscheduled: [change_id] });
      else this.store.commit({ unscheduled: [change_id] });
    });
  }
}

const BROKEN: Answer = { status: 500, body: errorBody('internal', 'something went wrong after the money had moved') };

/** A refusal by the payment's state is an answer like others: it is kept under the key. */
function decide(request: MoneyRequest, payment: PaymentRecord | null, behaviour: Behaviour): Decision | Refusal {
  const now_ms = Date.now();
  try {
    if (!payment) return decideCharge(request, behaviour, now_ms);
    if (request.operation === 'capture') return decideCapture(payment, request, behaviour, now_ms);
    if (request.operation === 'cancel') return decideCancel(payment, request, behaviour, now_ms);
    return decideRefund(payment, request, behaviour, now_ms);
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}

function answerTo(operation: MoneyOperation, decided: Decision | Refusal): Answer {
  const refusal = decided instanceof Refusal ? decided : decided.refusal;
  if (refusal) return { status: refusal.status, body: refusal.body };
  const { payment, refund } = decided as Decision;
  if (refund) return { status: 201, body: refundView(refund) };
  return { status: operation === 'charge' ? 201 : 200, body: paymentView(payment) };
}

/** A past that a new payment may have had: the customer had to act, a first card was declined. */
function pastOf(payment: PaymentRecord): PaymentRecord[] {
  if (payment.status !== 'succeeded' && payment.status !== 'authorized') return [];
  const open = { ...payment, amount_captured_minor: 0 };
  const action: PaymentRecord = { ...open, status: 'requires_action' };
  if (payment.status === 'authorized') return [action];
  return [{ ...open, status: 'failed', failure_code: 'card_declined' }, action];
}
