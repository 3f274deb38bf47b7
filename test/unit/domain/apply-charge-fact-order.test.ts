import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { applyChargeFact } from '../../../src/domain/apply-charge-fact.js';
import { addRefund, applyRefundFact } from '../../../src/domain/apply-refund-fact.js';
import { anomalyId } from '../../../src/domain/change.js';
import type { ChargeFact, Fact, RefundFact } from '../../../src/domain/fact.js';
import type { Operation, Payment } from '../../../src/domain/payment.js';
import { aPayment, anOperation, changeOf, chargeFact, FAILURE, NOW, refundFact } from '../../support/domain.js';

interface Rows {
  readonly payment: Payment;
  readonly operations: readonly Operation[];
  readonly anomalies: ReadonlySet<string>;
}

/** What a fact leaves, each in a transaction of its own: what is read next is what was written. */
function tell(rows: Rows, operation_id: string, fact: Fact): Rows {
  const change = changeOf(rows.payment, rows.operations, rows.anomalies);
  if (fact.type === 'charge') applyChargeFact(change, operation_id, fact);
  else applyRefundFact(change, refundOf(change.operations, fact)?.id ?? addForeign(change, fact), fact);
  checkChange(rows, change);
  const raised = change.anomalies.map(({ kind, operation_id: id }) => anomalyId(kind, id));
  return {
    payment: change.payment,
    operations: change.operations,
    anomalies: new Set([...rows.anomalies, ...raised]),
  };
}

function refundOf(operations: readonly Operation[], fact: RefundFact): Operation | undefined {
  return operations.find(({ provider_refund_id }) => provider_refund_id === fact.provider_refund_id);
}

function addForeign(change: ReturnType<typeof changeOf>, fact: RefundFact): string {
  const id = `foreign ${fact.provider_refund_id}`;
  const { amount_minor, provider_refund_id } = fact;
  addRefund(change, aRefund({ id, origin: 'provider', amount_minor, provider_refund_id, attempts_started: 0 }));
  return id;
}

function aRefund(fields: Partial<Operation>): Operation {
  return anOperation({ kind: 'refund', key_hash: null, ...fields });
}

/** What must hold of every change, whatever led to it. */
function checkChange(before: Rows, { payment, operations, events, anomalies }: ReturnType<typeof changeOf>): void {
  for (const amount of ['amount_captured_minor', 'amount_refunded_minor', 'refund_reserved_minor'] as const) {
    expect(payment[amount], amount).toBeGreaterThanOrEqual(0n);
  }
  expect(payment.amount_captured_minor).toBeGreaterThanOrEqual(before.payment.amount_captured_minor);
  expect(payment.refund_reserved_minor).toBeGreaterThanOrEqual(payment.amount_refunded_minor);
  if (before.payment.status === 'succeeded') expect(payment.status).toBe('succeeded');
  const inFlight = operations.filter(({ kind, status }) => status === 'processing' && kind !== 'refund');
  expect(inFlight.length, 'charges, captures and cancels in flight').toBeLessThan(2);
  const sequences = events.map(({ sequence }) => sequence);
  expect(sequences).toEqual(events.map((_event, n) => before.payment.version + 1 + n));
  expect(payment.version).toBeGreaterThanOrEqual(sequences.at(-1) ?? before.payment.version);
  for (const { kind, operation_id } of anomalies) {
    expect(before.anomalies, 'an anomaly is raised once').not.toContain(anomalyId(kind, operation_id));
  }
  for (const operation of operations) {
    const known = before.operations.find(({ id }) => id === operation.id);
    if (known?.kind === 'charge' && known.status === 'succeeded') expect(operation.status).toBe('succeeded');
    expect(operation.amount_minor).toBeGreaterThanOrEqual(0n);
  }
}

const begin = (payment: Partial<Payment> = {}, ...operations: Operation[]): Rows => ({
  payment: aPayment(payment),
  operations: operations.length > 0 ? operations : [anOperation()],
  anomalies: new Set(),
});

/** How things stand, as far as the order of news must not matter for it. */
function ending({ payment, operations, anomalies }: Rows) {
  const { status, amount_captured_minor, amount_refunded_minor, refund_reserved_minor, provider_payment_id } = payment;
  const ends = operations.map(({ id, status: end, amount_minor }) => [id, end, amount_minor]);
  return {
    status,
    amount_captured_minor,
    amount_refunded_minor,
    refund_reserved_minor,
    provider_payment_id,
    operations: ends.sort(([a], [b]) => String(a).localeCompare(String(b))),
    anomalies: [...anomalies],
  };
}

/** Every order of some news, each told once to three times. */
function anyOrder<News>(news: readonly News[]): fc.Arbitrary<News[]> {
  return fc
    .array(fc.integer({ min: 1, max: 3 }), { minLength: news.length, maxLength: news.length })
    .map((times) => news.flatMap((item, n) => Array<News>(times[n]!).fill(item)))
    .chain((all) => fc.shuffledSubarray(all, { minLength: all.length, maxLength: all.length }));
}

const said = (status: ChargeFact['status'], fields: Partial<ChargeFact> = {}): ChargeFact =>
  chargeFact({ status, ...fields });
const expired = said('failed', { failure: { code: 'authorization_expired', message: 'It has expired.' } });
const part = said('succeeded', { amount_captured_minor: 400n });

const manual = { capture: 'manual' } as const;
const held = { status: 'authorized', provider_payment_id: 'pay-1', ...manual } as const;
const heldCharge = anOperation({ status: 'authorized', provider_payment_id: 'pay-1' });
const open = { status: 'requires_action', provider_payment_id: 'pay-1' } as const;
const openCharge = anOperation(open);
const cancel = anOperation({ id: 'cancel', kind: 'cancel', amount_minor: 0n });
const capture = anOperation({ id: 'capture', kind: 'capture', amount_minor: 400n });

describe('what a provider tells of one charge, in any order and repeatedly, ends as in its own order', () => {
  it.each<[string, Rows, ChargeFact[], Payment['status']]>([
    ['paid', begin(), [said('succeeded')], 'succeeded'],
    ['paid after an action', begin(), [said('requires_action'), said('processing'), said('succeeded')], 'succeeded'],
    ['declined, then paid', begin(), [said('failed'), said('succeeded')], 'succeeded'],
    ['action, decline, paid', begin(), [said('requires_action'), said('failed'), said('succeeded')], 'succeeded'],
    ['declined', begin(), [said('requires_action'), said('failed')], 'failed'],
    ['declined and closed', begin(), [said('failed'), said('canceled')], 'failed'],
    ['given up by the customer', begin(), [said('requires_action'), said('canceled')], 'failed'],
    ['held', begin(manual), [said('requires_action'), said('authorized')], 'authorized'],
    ['captured there, in part', begin(manual), [said('requires_action'), said('authorized'), part], 'succeeded'],
    ['captured there, twice told', begin(manual), [said('authorized'), part, said('succeeded')], 'succeeded'],
    ['expired', begin(manual), [said('authorized'), expired], 'failed'],
    ['expired, known before', begin(held, heldCharge), [said('authorized'), expired], 'failed'],
    ['canceled there', begin(manual), [said('authorized'), said('canceled')], 'failed'],
    ['captured by us', begin(held, heldCharge, capture), [said('authorized'), part], 'succeeded'],
    ['canceled by us', begin(held, heldCharge, cancel), [said('authorized'), said('canceled')], 'canceled'],
    [
      'canceled by us while open',
      begin(open, openCharge, cancel),
      [said('requires_action'), said('canceled')],
      'canceled',
    ],
    [
      'paid while we cancel',
      begin(open, openCharge, cancel),
      [said('requires_action'), said('succeeded')],
      'succeeded',
    ],
  ])('%s', (_name, rows, news, status) => {
    const inOrder = news.reduce((now, fact) => tell(now, 'charge-1', fact), rows);
    expect(inOrder.payment.status).toBe(status);
    expect([...inOrder.anomalies]).toEqual([]);
    fc.assert(
      fc.property(anyOrder(news), (told) => {
        const end = told.reduce((now, fact) => tell(now, 'charge-1', fact), rows);
        expect(ending(end)).toEqual(ending(inOrder));
      }),
      { numRuns: 60 },
    );
  });

  it('refunds of ours and of others, with what the charge says: the totals are the sums of what stands', () => {
    const ours = aRefund({ id: 'ours', amount_minor: 300n, provider_refund_id: 'r-1' });
    const rows = begin({ refund_reserved_minor: 300n }, anOperation(), ours);
    const news: Fact[] = [
      said('succeeded'),
      said('succeeded', { amount_refunded_minor: 300n }),
      said('succeeded', { amount_refunded_minor: 500n }),
      refundFact({ provider_refund_id: 'r-1', amount_minor: 300n, status: 'processing' }),
      refundFact({ provider_refund_id: 'r-1', amount_minor: 300n }),
      refundFact({ provider_refund_id: 'r-2', amount_minor: 200n }),
      refundFact({ provider_refund_id: 'r-3', amount_minor: 100n }),
      refundFact({ provider_refund_id: 'r-3', amount_minor: 100n, status: 'failed', failure: FAILURE }),
    ];
    fc.assert(
      fc.property(anyOrder(news), (told) => {
        const end = told.reduce((now, fact) => tell(now, 'charge-1', fact), rows);
        expect(end.payment).toMatchObject({
          status: 'succeeded',
          amount_captured_minor: 1000n,
          amount_refunded_minor: 500n,
          refund_reserved_minor: 500n,
        });
        expect(end.operations.filter(({ kind }) => kind === 'refund')).toHaveLength(3);
        expect([...end.anomalies]).toEqual([]);
      }),
      { numRuns: 200 },
    );
  });
});

describe('a second charge under the same reference, made by a provider that forgot our key', () => {
  const twin = { provider_payment_id: 'pay-1-twin' };

  it.each(['processing', 'requires_action', 'failed', 'canceled'] as const)(
    'that is %s says nothing of the first',
    (status) => {
      const named = anOperation({ provider_payment_id: 'pay-1' });
      for (const rows of [begin(held, heldCharge), begin(open, openCharge, cancel), begin({}, named)]) {
        expect(ending(tell(rows, 'charge-1', said(status, twin)))).toEqual(ending(rows));
      }
    },
  );

  it('that took the money where the first did not is the one that we go by', () => {
    const declined = anOperation({ status: 'failed', failure: FAILURE, provider_payment_id: 'pay-1' });
    const { payment, operations, anomalies } = tell(
      begin({ status: 'failed', provider_payment_id: 'pay-1' }, declined),
      'charge-1',
      said('succeeded', twin),
    );
    expect(payment).toMatchObject({ status: 'succeeded', ...twin });
    expect(operations).toMatchObject([{ status: 'succeeded', ...twin }]);
    expect([...anomalies]).toEqual([]);
  });
});

describe('whatever a provider may tell, in whatever order', () => {
  const second = anOperation({ id: 'charge-2', try_number: 2, provider_key: 'provider-key-2' });
  const declined = anOperation({ status: 'failed', failure: FAILURE, provider_payment_id: 'pay-1' });
  const closed = anOperation({ ...declined, closed_at: NOW });
  const again = { status: 'authorized', provider_payment_id: 'pay-2', ...manual } as const;
  const heldAgain = { ...second, status: 'authorized', provider_payment_id: 'pay-2' } as const;
  const starts = {
    begun: begin(),
    'begun, manual': begin(manual),
    open: begin(open, openCharge),
    'open, being canceled': begin(open, openCharge, cancel),
    held: begin(held, heldCharge),
    'held, being canceled': begin(held, heldCharge, cancel),
    'held, being captured': begin(held, heldCharge, capture),
    declined: begin({ status: 'failed', failure: FAILURE, provider_payment_id: 'pay-1' }, declined),
    'paid again': begin({}, closed, second),
    'paid again, open, being canceled': begin(
      { status: 'requires_action' },
      closed,
      { ...second, status: 'requires_action' },
      cancel,
    ),
    'paid again, held, being captured': begin(again, declined, heldAgain, capture),
    'paid again, held, being canceled': begin(again, closed, heldAgain, cancel),
  } as const;
  const amount = fc.constantFrom(0n, 1n, 400n, 999n, 1000n, 1500n);
  /** The second name of each: made under the same reference by a provider that forgot our key. */
  const names = { 'charge-1': ['pay-1', 'pay-1-twin'], 'charge-2': ['pay-2', 'pay-2-twin'] } as const;
  const charge = fc
    .record({
      operation_id: fc.constantFrom('charge-1', 'charge-2'),
      isTwin: fc.oneof({ weight: 4, arbitrary: fc.constant(false) }, fc.constant(true)),
      fields: fc.record({
        status: fc.constantFrom<ChargeFact['status']>(
          'processing',
          'requires_action',
          'authorized',
          'succeeded',
          'failed',
          'canceled',
        ),
        amount_minor: fc.oneof({ weight: 4, arbitrary: fc.constant(1000n) }, amount),
        amount_captured_minor: fc.oneof({ weight: 2, arbitrary: fc.constant(1000n) }, amount),
        amount_refunded_minor: amount,
        currency: fc.oneof({ weight: 9, arbitrary: fc.constant('EUR') }, fc.constant('USD')),
        closed: fc.boolean(),
      }),
    })
    .map(({ operation_id, isTwin, fields }) => {
      const provider_payment_id = names[operation_id][isTwin ? 1 : 0];
      return { operation_id: operation_id, fact: said(fields.status, { ...fields, provider_payment_id }) };
    });
  const refund = fc.record({
    operation_id: fc.constant(''),
    fact: fc
      .record({
        status: fc.constantFrom<RefundFact['status']>('processing', 'succeeded', 'failed', 'canceled'),
        provider_refund_id: fc.constantFrom('r-1', 'r-2', 'r-3'),
        amount_minor: amount,
        currency: fc.oneof({ weight: 9, arbitrary: fc.constant('EUR') }, fc.constant('USD')),
      })
      .map((fields) => refundFact(fields)),
  });

  it('nothing throws, no amount is below zero, no money is forgotten, and every anomaly is raised once', () => {
    const startNames = Object.keys(starts) as (keyof typeof starts)[];
    const news = fc.array(fc.oneof({ weight: 3, arbitrary: charge }, refund), { minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(fc.constantFrom(...startNames), news, (name, all) => {
        let now: Rows = starts[name];
        for (const { operation_id, fact } of all) {
          if (fact.type === 'charge' && !now.operations.some(({ id }) => id === operation_id)) continue;
          now = tell(now, operation_id, fact);
          // Told again at once, it changes nothing more.
          const repeated = tell(now, operation_id, fact);
          expect(repeated.payment.version, JSON.stringify(ending(now), text)).toBe(now.payment.version);
        }
        const refunds = now.operations.filter(({ kind }) => kind === 'refund');
        const sum = (statuses: string[]): bigint =>
          refunds.filter(({ status }) => statuses.includes(status)).reduce((total, o) => total + o.amount_minor, 0n);
        expect(now.payment.amount_refunded_minor).toBe(sum(['succeeded']));
        expect(now.payment.refund_reserved_minor).toBe(sum(['succeeded', 'processing']));
      }),
      { numRuns: 1_500 },
    );
  });
});

const text = (_name: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);
