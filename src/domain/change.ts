import type { Operation, Payment, PaymentStatus } from './payment.js';
import { canMoveOperation, canMovePayment } from './moves.js';
import type { OperationStatus } from './payment.js';

/** What a change came from; shown in the timeline. */
export type Cause = 'request' | 'webhook' | 'recovery' | 'reconciliation' | 'operator';

export type AnomalyKind =
  | 'paid_twice'
  | 'paid_after_cancel'
  | 'amount_mismatch'
  | 'currency_mismatch'
  | 'captured_too_much'
  | 'refunded_too_much'
  | 'late_success'
  | 'unknown_operation';

/** Something that must not be: recorded, counted, published and shown to operators, never silent. */
export interface Anomaly {
  readonly kind: AnomalyKind;
  readonly operation_id: string | null;
  readonly detail: Readonly<Record<string, string>>;
}

export type EventType =
  | 'PaymentProcessing.v1'
  | 'PaymentRequiresAction.v1'
  | 'PaymentAuthorized.v1'
  | 'PaymentSucceeded.v1'
  | 'PaymentFailed.v1'
  | 'PaymentCanceled.v1'
  | 'RefundSucceeded.v1'
  | 'RefundFailed.v1'
  | 'PaymentAnomalyDetected.v1';

/** An event to publish, not yet with an id. `sequence` is the payment's version that it tells of. */
export interface ChangeEvent {
  readonly type: EventType;
  readonly sequence: number;
  readonly operation_id: string | null;
  readonly anomaly: Anomaly | null;
}

export interface HistoryEntry {
  readonly at: string;
  readonly from: PaymentStatus;
  readonly to: PaymentStatus;
  readonly version: number;
  readonly cause: Cause;
  readonly operation_id: string | null;
}

export const EVENT_OF_STATUS: Readonly<Record<PaymentStatus, EventType>> = {
  processing: 'PaymentProcessing.v1',
  requires_action: 'PaymentRequiresAction.v1',
  authorized: 'PaymentAuthorized.v1',
  succeeded: 'PaymentSucceeded.v1',
  failed: 'PaymentFailed.v1',
  canceled: 'PaymentCanceled.v1',
};

/** Names an anomaly within its payment. */
export function anomalyId(kind: AnomalyKind, operation_id: string | null): string {
  return `${kind} ${operation_id ?? ''}`;
}

/**
 * A payment with its operations, being changed by facts. Collects what has to be written together: rows, events,
 * anomalies, history. It is the only place where a status is set, and it refuses a move that is none.
 */
export class Change {
  readonly before: Payment;
  payment: Payment;
  readonly events: ChangeEvent[] = [];
  readonly anomalies: Anomaly[] = [];
  readonly history: HistoryEntry[] = [];
  readonly #operations: Map<string, Operation>;
  readonly #changed = new Set<string>();
  readonly #added = new Set<string>();
  readonly #decided = new Set<string>();

  constructor(
    payment: Payment,
    operations: readonly Operation[],
    readonly now: Date,
    readonly cause: Cause,
    /** Anomalies on record already, as `anomalyId` names them: each is raised once. */
    readonly known_anomalies: ReadonlySet<string> = new Set(),
  ) {
    this.before = payment;
    this.payment = payment;
    this.#operations = new Map(operations.map((operation) => [operation.id, operation]));
  }

  get operations(): readonly Operation[] {
    return [...this.#operations.values()];
  }
  /** The operations that differ from what was read, without the new ones. */
  get changedOperations(): readonly Operation[] {
    return [...this.#changed].filter((id) => !this.#added.has(id)).map((id) => this.operation(id));
  }
  /** The operations that did not exist: refunds made at the provider's own side. */
  get addedOperations(): readonly Operation[] {
    return [...this.#added].map((id) => this.operation(id));
  }
  /** The operations whose outcome became known here: whoever waits for them is to be answered. */
  get decidedOperations(): readonly Operation[] {
    return [...this.#decided].map((id) => this.operation(id));
  }
  get isEmpty(): boolean {
    return this.#changed.size === 0 && this.payment === this.before && this.anomalies.length === 0;
  }

  operation(id: string): Operation {
    const operation = this.#operations.get(id);
    if (!operation) throw new Error(`operation ${id} is not part of this change`);
    return operation;
  }

  /** Changes fields of an operation other than its status. */
  updateOperation(id: string, fields: Partial<Omit<Operation, 'id' | 'status'>>): void {
    const operation = this.operation(id);
    const differs = Object.entries(fields).some(([name, value]) => operation[name as keyof Operation] !== value);
    if (!differs) return;
    this.#operations.set(id, { ...operation, ...fields, updated_at: this.now });
    this.#changed.add(id);
  }

  /**
   * Moves an operation. Returns whether it moved; a move that is not allowed changes nothing. What moved has news, so that
   * no operator needs to look at it any more.
   */
  moveOperation(id: string, to: OperationStatus, fields: Partial<Omit<Operation, 'id' | 'status'>> = {}): boolean {
    const operation = this.operation(id);
    if (!canMoveOperation(operation.kind, operation.status, to)) return false;
    this.#operations.set(id, { ...operation, needs_review_at: null, ...fields, status: to, updated_at: this.now });
    this.#changed.add(id);
    if (operation.status === 'processing' && to !== 'processing') this.#decided.add(id);
    return true;
  }

  addOperation(operation: Operation): void {
    this.#operations.set(operation.id, operation);
    this.#changed.add(operation.id);
    this.#added.add(operation.id);
    this.touch();
  }

  /** Changes fields of the payment other than its status. */
  updatePayment(fields: Partial<Omit<Payment, 'id' | 'status' | 'version' | 'updated_at'>>): void {
    const differs = Object.entries(fields).some(([name, value]) => this.payment[name as keyof Payment] !== value);
    if (!differs) return;
    this.payment = { ...this.payment, ...fields };
    this.touch();
  }

  /** Moves the payment and publishes it. Returns whether it moved; a move that is not allowed changes nothing. */
  movePayment(
    to: PaymentStatus,
    operation_id: string,
    fields: Partial<Omit<Payment, 'id' | 'status' | 'version'>> = {},
  ): boolean {
    const from = this.payment.status;
    if (!canMovePayment(from, to)) return false;
    this.payment = { ...this.payment, ...fields, status: to };
    this.publish(EVENT_OF_STATUS[to], operation_id);
    const version = this.payment.version;
    this.history.push({ at: this.now.toISOString(), from, to, version, cause: this.cause, operation_id });
    return true;
  }

  /** Adds an event under a version of its own, so that `sequence` orders all events of a payment. */
  publish(type: EventType, operation_id: string | null, anomaly: Anomaly | null = null): void {
    const published = this.events.length;
    this.payment = { ...this.payment, version: this.before.version + published + 1, updated_at: this.now };
    this.events.push({ type, sequence: this.payment.version, operation_id, anomaly });
  }

  raise(kind: AnomalyKind, operation_id: string | null, detail: Readonly<Record<string, string>> = {}): void {
    const isKnown = this.anomalies.some((known) => known.kind === kind && known.operation_id === operation_id);
    if (isKnown || this.known_anomalies.has(anomalyId(kind, operation_id))) return;
    const anomaly: Anomaly = { kind, operation_id, detail };
    this.anomalies.push(anomaly);
    this.publish('PaymentAnomalyDetected.v1', operation_id, anomaly);
  }

  /** Any write of the payment's row is a new version, so that whoever read the old one decides again. */
  touch(): void {
    const version = Math.max(this.payment.version, this.before.version + 1);
    this.payment = { ...this.payment, version, updated_at: this.now };
  }
}
