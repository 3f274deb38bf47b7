import { Ledger } from './ledger.js';
import type {
  CallRecord,
  Entry,
  EventRecord,
  KeyRecord,
  MoneyOperation,
  Movement,
  PaymentRecord,
  RefundRecord,
  ScheduledChange,
} from './records.js';

const CALLS_KEPT = 200_000;
const EVENTS_KEPT = 10_000;

/** What is in the ledger, in memory and indexed. One function changes it, at run time and when the file is read. */
export class Store {
  readonly payments = new Map<string, PaymentRecord>();
  readonly refunds = new Map<string, RefundRecord>();
  readonly keys = new Map<string, KeyRecord>();
  readonly scheduled = new Map<string, ScheduledChange>();
  readonly movements: Movement[] = [];
  /** Events that were not delivered yet, and the latest of those that were. */
  readonly undelivered = new Map<string, EventRecord>();
  readonly delivered = new Map<string, EventRecord>();
  readonly #paymentsByReference = new Map<string, string[]>();
  readonly #refundsByReference = new Map<string, string[]>();
  readonly #shownOnce = new Set<string>();
  readonly #next = new Map<string, string[]>();
  #calls: CallRecord[] = [];
  #callNumber = 0;
  #ledger: Ledger | null = null;

  private constructor() {}

  /** @throws Error where the ledger can't be opened or read. */
  static async open(ledger_file: string): Promise<Store> {
    const store = new Store();
    store.#ledger = await Ledger.open(ledger_file, (entry) => store.#apply(entry));
    for (const call of store.#calls) {
      // The process died before it answered.
      if (call.answer === null) store.answered(call.number, 'silent');
    }
    return store;
  }

  /** Changes memory at once and the file soon: whoever is told of it waits for `synced()` first. */
  commit(entry: Entry): void {
    this.#apply(entry);
    this.#ledger?.append(entry, { sync: true });
  }

  /** The same for what is no money: it need not survive a loss of power. */
  note(entry: Entry): void {
    this.#apply(entry);
    this.#ledger?.append(entry, { sync: false });
  }

  /** @throws Error where the ledger can't be written: then nothing may be told any more. */
  async synced(): Promise<void> {
    await this.#ledger?.synced();
  }

  async close(): Promise<void> {
    await this.#ledger?.close();
  }

  get calls(): readonly CallRecord[] {
    return this.#calls;
  }

  /** Records a request that came in; returns its number for `answered`. */
  called(call: Omit<CallRecord, 'number' | 'answer'>): number {
    const number = this.#callNumber + 1;
    this.note({ call: { number, ...call, answer: null } });
    return number;
  }

  answered(number: number, answer: number | 'silent'): void {
    this.note({ answered: { number, answer } });
  }

  paymentsByReference(reference: string): PaymentRecord[] {
    return (this.#paymentsByReference.get(reference) ?? []).flatMap((id) => this.payments.get(id) ?? []);
  }

  refundsByReference(reference: string): RefundRecord[] {
    return (this.#refundsByReference.get(reference) ?? []).flatMap((id) => this.refunds.get(id) ?? []);
  }

  /** A payment by its own id or, for tests' convenience, by its reference (the newest with it). */
  findPayment(id_or_reference: string): PaymentRecord | undefined {
    return this.payments.get(id_or_reference) ?? this.paymentsByReference(id_or_reference).at(-1);
  }

  wasShownOnce(reference: string): boolean {
    return this.#shownOnce.has(reference);
  }

  /** The behaviour that was asked for the payment's next operation of this kind; it is used up. */
  takeNext(payment_id: string, operation: MoneyOperation): string | null {
    const behaviour = this.#next.get(`${payment_id} ${operation}`)?.[0];
    if (behaviour === undefined) return null;
    this.note({ next_taken: { payment_id, operation } });
    return behaviour;
  }

  scheduledFor(payment_id: string): ScheduledChange[] {
    return [...this.scheduled.values()].filter((change) => change.payment_id === payment_id);
  }

  #apply(entry: Entry): void {
    if (entry.forgot_keys) this.keys.clear();
    if (entry.payment) this.#putPayment(entry.payment);
    if (entry.refund) this.#putRefund(entry.refund);
    if (entry.movements) this.movements.push(...entry.movements);
    if (entry.key) this.keys.set(entry.key.key, entry.key);
    if (entry.scheduled) this.scheduled.set(entry.scheduled.id, entry.scheduled);
    for (const id of entry.unscheduled ?? []) this.scheduled.delete(id);
    for (const event of entry.events ?? []) this.undelivered.set(event.id, event);
    if (entry.delivered) this.#putDelivered(entry.delivered);
    if (entry.shown_once) this.#shownOnce.add(entry.shown_once);
    if (entry.next_added) this.#addNext(entry.next_added);
    if (entry.next_taken) this.#next.get(`${entry.next_taken.payment_id} ${entry.next_taken.operation}`)?.shift();
    if (entry.call) this.#putCall(entry.call);
    if (entry.answered) this.#putAnswer(entry.answered.number, entry.answered.answer);
  }

  #putPayment(payment: PaymentRecord): void {
    if (!this.payments.has(payment.id)) addTo(this.#paymentsByReference, payment.reference, payment.id);
    this.payments.set(payment.id, payment);
  }

  #putRefund(refund: RefundRecord): void {
    if (refund.reference !== null && !this.refunds.has(refund.id)) {
      addTo(this.#refundsByReference, refund.reference, refund.id);
    }
    this.refunds.set(refund.id, refund);
  }

  #putDelivered(event_id: string): void {
    const event = this.undelivered.get(event_id);
    if (!event) return;
    this.undelivered.delete(event_id);
    this.delivered.set(event_id, event);
    if (this.delivered.size <= EVENTS_KEPT) return;
    const oldest = this.delivered.keys().next();
    if (!oldest.done) this.delivered.delete(oldest.value);
  }

  #addNext(next: NonNullable<Entry['next_added']>): void {
    addTo(this.#next, `${next.payment_id} ${next.operation}`, next.behaviour);
  }

  #putCall(call: CallRecord): void {
    this.#calls.push(call);
    this.#callNumber = call.number;
    // In large steps, since moving the rest costs as much for one as for many.
    if (this.#calls.length > CALLS_KEPT * 1.25) this.#calls = this.#calls.slice(-CALLS_KEPT);
  }

  #putAnswer(number: number, answer: number | 'silent'): void {
    const first = this.#calls[0];
    const index = first ? number - first.number : -1;
    const call = this.#calls[index];
    if (call) this.#calls[index] = { ...call, answer };
  }
}

function addTo(lists: Map<string, string[]>, name: string, value: string): void {
  const list = lists.get(name);
  if (list) list.push(value);
  else lists.set(name, [value]);
}
