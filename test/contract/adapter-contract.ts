import type { IncomingHttpHeaders } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ChargeFact } from '../../src/domain/fact.js';
import type { FailureCode, OperationKind } from '../../src/domain/payment.js';
import {
  type CallOptions,
  type ChargeRequest,
  InvalidSignature,
  type PaymentProvider,
  ProviderError,
  type ProviderMetadata,
  type RetrieveTarget,
} from '../../src/providers/provider.js';

/**
 * What a request meets at the provider. The first two move the money and lose the answer; the others move nothing.
 * `hang` answers nothing, `unavailable` is a 5xx.
 */
export type Fault = 'hang' | 'reset' | 'unavailable' | 'key_in_use' | 'rate_limited' | 'not_permitted';

export interface WebhookOptions {
  readonly about: 'charge' | 'refund' | 'unknown_type';
  readonly metadata: ProviderMetadata;
  readonly signed_with: 'newest_secret' | 'older_secret' | 'unknown_secret';
  /** How long ago it was signed; negative: in the future. */
  readonly age_s?: number;
  readonly event_id?: string;
}

/** An adapter with a stand-in of its provider to talk to. */
export interface AdapterHarness {
  /** With two webhook secrets, as in a rotation. */
  readonly provider: PaymentProvider;
  /** The same adapter, at an address where nobody listens. */
  readonly unreachable: PaymentProvider;
  readonly payment_methods: {
    readonly success: string;
    readonly requires_action: string;
    /** One that the provider refuses to take. */
    readonly unusable: string;
    readonly declines: readonly (readonly [payment_method: string, code: FailureCode])[];
  };
  /** What a look-up of something that the provider never heard of says. */
  readonly unheard_of: 'not_found' | 'not_visible_yet';
  /** Makes the next charge with the payment method that is returned meet the fault. */
  faultyCharge(fault: Fault): Promise<string>;
  /** Makes the next operation of this kind on the charge meet the fault. */
  faultyNext(provider_payment_id: string, kind: Exclude<OperationKind, 'charge'>, fault: Fault): Promise<void>;
  /** How often money moved on charges with this reference, and in refunds with it. */
  movements(reference: string): Promise<number>;
  /** Lets look-ups by reference see all that there is. */
  catchUp(): Promise<void>;
  webhook(options: WebhookOptions): { headers: IncomingHttpHeaders; rawBody: Buffer };
  stop(): Promise<void>;
}

const LIMIT_MS = 5_000;
const FAULTS_THAT_MOVE_NOTHING: readonly Fault[] = ['unavailable', 'key_in_use', 'rate_limited', 'not_permitted'];

let keys = 0;
function newKey(): string {
  keys += 1;
  return `${process.pid}${Date.now()}${keys}`.padStart(64, '0');
}

function callWith(provider_key: string, timeout_ms = LIMIT_MS): CallOptions {
  return { provider_key, timeout_ms };
}

function metadataOf(reference: string): ProviderMetadata {
  return { reference, installation_id: 'installation-1', external_payment_id: 'order-1' };
}

function targetOf(kind: OperationKind, reference: string, more: Partial<RetrieveTarget> = {}): RetrieveTarget {
  return {
    kind,
    reference,
    charge_reference: reference,
    provider_payment_id: null,
    provider_refund_id: null,
    currency: 'EUR',
    external_payment_id: 'order-1',
    installation_id: 'installation-1',
    ...more,
  };
}

async function errorOf(result: Promise<unknown>): Promise<ProviderError> {
  const error = await result.then(
    (value: unknown) =>
      new Error(`no error but ${JSON.stringify(value, (_, v: unknown) => (typeof v === 'bigint' ? String(v) : v))}`),
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof ProviderError)) throw error;
  return error;
}

/** What every adapter must do, whatever its provider is like. Call it at the top of a test file. */
export function describeAdapterContract(name: string, start: () => Promise<AdapterHarness>): void {
  let harness: AdapterHarness;
  const provider = () => harness.provider;
  const requestOf = (reference: string, more: Partial<ChargeRequest> = {}): ChargeRequest => ({
    amount_minor: 1000n,
    currency: 'EUR',
    payment_method: harness.payment_methods.success,
    capture: 'automatic',
    return_url: 'https://shop.example/back',
    metadata: metadataOf(reference),
    ...more,
  });
  const charge = (reference: string, more: Partial<ChargeRequest> = {}, timeout_ms?: number): Promise<ChargeFact> =>
    provider().charge(requestOf(reference, more), callWith(reference, timeout_ms));
  const captureOf = (provider_payment_id: string, amount_minor: bigint, key = newKey()) =>
    provider().capture(
      { provider_payment_id, amount_minor, currency: 'EUR', metadata: metadataOf(key) },
      callWith(key),
    );
  const cancelOf = (provider_payment_id: string, key = newKey()) =>
    provider().cancel({ provider_payment_id, metadata: metadataOf(key) }, callWith(key));
  const refundOf = (provider_payment_id: string, amount_minor: bigint, key = newKey(), timeout_ms?: number) =>
    provider().refund(
      { provider_payment_id, amount_minor, currency: 'EUR', reason: null, metadata: metadataOf(key) },
      callWith(key, timeout_ms),
    );
  const retrieve = (target: RetrieveTarget) => provider().retrieve(target, { timeout_ms: LIMIT_MS });

  describe(`adapter contract: ${name}`, () => {
    beforeAll(async () => {
      harness = await start();
    });
    afterAll(() => harness.stop());

    describe('charge', () => {
      it('automatic: the money is taken', async () => {
        const reference = newKey();
        expect(await charge(reference)).toEqual({
          type: 'charge',
          status: 'succeeded',
          provider_payment_id: expect.stringMatching(/./),
          amount_minor: 1000n,
          currency: 'EUR',
          amount_captured_minor: 1000n,
          amount_refunded_minor: 0n,
          failure: null,
          next_action: null,
          closed: false,
        });
        expect(await harness.movements(reference)).toBe(1);
      });

      it('manual: the money is held', async () => {
        expect(await charge(newKey(), { capture: 'manual' })).toMatchObject({
          status: 'authorized',
          amount_minor: 1000n,
          amount_captured_minor: 0n,
        });
      });

      it('the same request under the same key is the same charge', async () => {
        const reference = newKey();
        const first = await charge(reference);
        expect(await charge(reference)).toEqual(first);
        expect(await harness.movements(reference)).toBe(1);
      });

      it('another request under the same key is never an outcome', async () => {
        const reference = newKey();
        await charge(reference);
        expect(await errorOf(charge(reference, { amount_minor: 999n }))).toMatchObject({
          kind: 'unknown',
          reason: 'key_mismatch',
          failure: null,
        });
        expect(await harness.movements(reference)).toBe(1);
      });

      it('every decline is an outcome, with its code', async () => {
        for (const [payment_method, code] of harness.payment_methods.declines) {
          const reference = newKey();
          const fact = await charge(reference, { payment_method });
          expect(fact).toMatchObject({ status: 'failed', failure: { code }, amount_captured_minor: 0n });
          expect(fact.failure?.message).toMatch(/\w/);
          expect(await harness.movements(reference)).toBe(0);
        }
      });

      it('what the customer has to do is told', async () => {
        const reference = newKey();
        const fact = await charge(reference, { payment_method: harness.payment_methods.requires_action });
        expect(fact).toMatchObject({
          status: 'requires_action',
          closed: false,
          next_action: { url: expect.stringMatching(/^https?:/) },
        });
        expect(await harness.movements(reference)).toBe(0);
      });

      it('a payment method that can’t be used is refused or failed, with a code, and moves nothing', async () => {
        const reference = newKey();
        const { unusable } = harness.payment_methods;
        const failure = await charge(reference, { payment_method: unusable }).then(
          (fact) => fact.failure,
          (error: unknown) => (error instanceof ProviderError && error.kind === 'refused' ? error.failure : null),
        );
        expect(failure?.code).toBe('payment_method_invalid');
        expect(await harness.movements(reference)).toBe(0);
      });

      it('no answer in time: unknown, within the limit; the key then tells', async () => {
        const reference = newKey();
        const payment_method = await harness.faultyCharge('hang');
        const started = performance.now();
        expect(await errorOf(charge(reference, { payment_method }, 600))).toMatchObject({
          kind: 'unknown',
          reason: 'timeout',
        });
        expect(performance.now() - started).toBeLessThan(3_000);
        expect(await charge(reference, { payment_method })).toMatchObject({ status: 'succeeded' });
        expect(await harness.movements(reference)).toBe(1);
      });

      it('a dropped connection: unknown; the key then tells', async () => {
        const reference = newKey();
        const payment_method = await harness.faultyCharge('reset');
        expect(await errorOf(charge(reference, { payment_method }))).toMatchObject({
          kind: 'unknown',
          reason: 'connection_reset',
        });
        expect(await charge(reference, { payment_method })).toMatchObject({ status: 'succeeded' });
        expect(await harness.movements(reference)).toBe(1);
      });

      it.each(FAULTS_THAT_MOVE_NOTHING)('%s is never an outcome', async (fault) => {
        const reference = newKey();
        const payment_method = await harness.faultyCharge(fault);
        const error = await errorOf(charge(reference, { payment_method }));
        expect(error).toMatchObject({ kind: 'unknown', failure: null });
        expect(error.reason).toMatch(fault === 'unavailable' ? /^http_5\d\d$/ : new RegExp(`^${fault}$`));
        expect(await harness.movements(reference)).toBe(0);
      });
    });

    describe('capture', () => {
      it('of a part: that is taken', async () => {
        const { provider_payment_id } = await charge(newKey(), { capture: 'manual' });
        const key = newKey();
        const fact = await captureOf(provider_payment_id, 600n, key);
        const expected = {
          status: 'succeeded',
          amount_captured_minor: 600n,
          amount_refunded_minor: 0n,
          provider_payment_id,
        };
        expect(fact).toMatchObject({ ...expected, currency: 'EUR' });
        expect(await captureOf(provider_payment_id, 600n, key)).toEqual(fact);
      });

      it('of what was captured already: what it had become, or refused', async () => {
        const { provider_payment_id } = await charge(newKey(), { capture: 'manual' });
        await captureOf(provider_payment_id, 600n);
        const again = await captureOf(provider_payment_id, 500n).catch((error: unknown) => error);
        if (again instanceof ProviderError) expect(again.kind).toBe('refused');
        else expect(again).toMatchObject({ status: 'succeeded', amount_captured_minor: 600n });
      });

      it('of more than is authorized: refused, with a code', async () => {
        const { provider_payment_id } = await charge(newKey(), { capture: 'manual' });
        const error = await errorOf(captureOf(provider_payment_id, 1001n));
        expect([error.kind, error.failure?.code]).toEqual(['refused', expect.stringMatching(/\w/)]);
      });

      it.each<Fault>(['reset', 'unavailable', 'key_in_use'])('%s: unknown; the same again tells', async (fault) => {
        const { provider_payment_id } = await charge(newKey(), { capture: 'manual' });
        await harness.faultyNext(provider_payment_id, 'capture', fault);
        const key = newKey();
        expect((await errorOf(captureOf(provider_payment_id, 1000n, key))).kind).toBe('unknown');
        // Some providers keep a 5xx under the key: then the charge itself tells.
        const told = await captureOf(provider_payment_id, 1000n, key).catch(() =>
          retrieve(targetOf('capture', key, { provider_payment_id })),
        );
        expect(told).toMatchObject({ type: 'charge', provider_payment_id });
      });
    });

    describe('cancel', () => {
      it('of an authorization: closed for good', async () => {
        const { provider_payment_id } = await charge(newKey(), { capture: 'manual' });
        const fact = await cancelOf(provider_payment_id);
        expect(fact).toMatchObject({ status: 'canceled', closed: true, amount_captured_minor: 0n });
      });

      it('of an open action: closed for good', async () => {
        const { requires_action } = harness.payment_methods;
        const { provider_payment_id } = await charge(newKey(), { payment_method: requires_action });
        expect(await cancelOf(provider_payment_id)).toMatchObject({ status: 'canceled', closed: true });
      });

      it('of a declined try: closed for good, as often as it is asked', async () => {
        const [decline] = harness.payment_methods.declines;
        const { provider_payment_id } = await charge(newKey(), { payment_method: decline?.[0] ?? null });
        expect((await cancelOf(provider_payment_id)).closed).toBe(true);
        expect((await cancelOf(provider_payment_id)).closed).toBe(true);
      });

      it('of money that was taken: what it had become, or refused', async () => {
        const { provider_payment_id } = await charge(newKey());
        const result = await cancelOf(provider_payment_id).catch((error: unknown) => error);
        if (result instanceof ProviderError) expect(result.kind).toBe('refused');
        else expect(result).toMatchObject({ status: 'succeeded', amount_captured_minor: 1000n });
      });
    });

    describe('refund', () => {
      it('of a part, twice: both happen; repeated, it is the same', async () => {
        const { provider_payment_id } = await charge(newKey());
        const key = newKey();
        const fact = await refundOf(provider_payment_id, 300n, key);
        expect(fact).toEqual({
          type: 'refund',
          status: 'succeeded',
          provider_refund_id: expect.stringMatching(/./),
          provider_payment_id,
          amount_minor: 300n,
          currency: 'EUR',
          failure: null,
        });
        expect(await refundOf(provider_payment_id, 300n, key)).toEqual(fact);
        expect((await refundOf(provider_payment_id, 300n)).provider_refund_id).not.toBe(fact.provider_refund_id);
        const after = await retrieve(targetOf('charge', newKey(), { provider_payment_id }));
        expect(after).toMatchObject({ status: 'succeeded', amount_captured_minor: 1000n, amount_refunded_minor: 600n });
      });

      it('of more than is left: refused, with a code', async () => {
        const { provider_payment_id } = await charge(newKey());
        const error = await errorOf(refundOf(provider_payment_id, 1001n));
        expect([error.kind, error.failure?.code]).toEqual(['refused', expect.stringMatching(/\w/)]);
      });

      it('whose answer is lost: unknown; the key then tells', async () => {
        const { provider_payment_id } = await charge(newKey());
        await harness.faultyNext(provider_payment_id, 'refund', 'hang');
        const key = newKey();
        expect((await errorOf(refundOf(provider_payment_id, 400n, key, 600))).reason).toBe('timeout');
        expect(await refundOf(provider_payment_id, 400n, key)).toMatchObject({
          status: 'succeeded',
          amount_minor: 400n,
        });
        expect(await harness.movements(key)).toBe(1);
      });
    });

    describe('retrieve', () => {
      it('a charge, by its reference and by its name', async () => {
        const reference = newKey();
        const fact = await charge(reference);
        await harness.catchUp();
        expect(await retrieve(targetOf('charge', reference))).toEqual(fact);
        const { provider_payment_id } = fact;
        expect(await retrieve(targetOf('charge', newKey(), { provider_payment_id }))).toEqual(fact);
      });

      it('a charge whose answer was lost', async () => {
        const reference = newKey();
        const payment_method = await harness.faultyCharge('reset');
        await errorOf(charge(reference, { payment_method }));
        await harness.catchUp();
        expect(await retrieve(targetOf('charge', reference))).toMatchObject({
          status: 'succeeded',
          amount_minor: 1000n,
        });
      });

      it.each(['capture', 'cancel'] as const)('a %s is the charge as it is', async (kind) => {
        const charge_reference = newKey();
        const { provider_payment_id } = await charge(charge_reference, { capture: 'manual' });
        await harness.catchUp();
        const target = targetOf(kind, newKey(), { charge_reference });
        expect(await retrieve(target)).toMatchObject({ status: 'authorized', provider_payment_id });
        await (kind === 'capture' ? captureOf(provider_payment_id, 400n) : cancelOf(provider_payment_id));
        const status = kind === 'capture' ? 'succeeded' : 'canceled';
        expect(await retrieve({ ...target, provider_payment_id })).toMatchObject({ status });
      });

      it('a refund, by its reference and by its name', async () => {
        const charge_reference = newKey();
        const { provider_payment_id } = await charge(charge_reference);
        const reference = newKey();
        const fact = await refundOf(provider_payment_id, 300n, reference);
        await harness.catchUp();
        const target = targetOf('refund', reference, { charge_reference, provider_payment_id });
        expect(await retrieve(target)).toEqual(fact);
        expect(await retrieve({ ...target, provider_refund_id: fact.provider_refund_id })).toEqual(fact);
        expect(await retrieve({ ...target, reference: newKey() })).toBe('not_found');
      });

      it('what the provider never heard of', async () => {
        expect(await retrieve(targetOf('charge', newKey()))).toBe(harness.unheard_of);
      });
    });

    it('nobody listens: not sent, for every call', async () => {
      const key = newKey();
      const calls = harness.unreachable;
      const about = { provider_payment_id: 'pi_x', metadata: metadataOf(key) };
      const money = { ...about, amount_minor: 1n, currency: 'EUR' };
      const options = callWith(key);
      for (const call of [
        () => calls.charge(requestOf(key), options),
        () => calls.capture(money, options),
        () => calls.cancel(about, options),
        () => calls.refund({ ...money, reason: null }, options),
        () => calls.retrieve(targetOf('charge', key, { provider_payment_id: 'pi_x' }), { timeout_ms: LIMIT_MS }),
      ]) {
        expect(await errorOf(call())).toMatchObject({ kind: 'not_sent', reason: 'connection_refused' });
      }
    });

    describe('webhooks', () => {
      const metadata = metadataOf('a'.repeat(64));
      const parse = (options: Partial<WebhookOptions>, change?: (body: Buffer) => Buffer) => {
        const sent = harness.webhook({ about: 'charge', metadata, signed_with: 'newest_secret', ...options });
        return provider().parseWebhook(sent.headers, change ? change(sent.rawBody) : sent.rawBody);
      };

      it('of a charge: the fact, its id and our metadata', () => {
        const event = parse({ event_id: 'evt_1' });
        expect(event).toMatchObject({ event_id: 'evt_1', charge_metadata: metadata, refund_metadata: null });
        expect(event.fact).toMatchObject({ type: 'charge', status: 'succeeded', amount_minor: 1000n });
        expect(Math.abs(event.occurred_at.getTime() - Date.now())).toBeLessThan(600_000);
      });

      it('of a refund: the fact and our metadata', () => {
        const event = parse({ about: 'refund' });
        expect(event.fact).toMatchObject({ type: 'refund', status: 'succeeded', amount_minor: 300n });
        expect(event.refund_metadata).toEqual(metadata);
      });

      it('of a type that we don’t know: an event without a fact', () => {
        expect(parse({ about: 'unknown_type' }).fact).toBeNull();
      });

      it('are accepted with either secret of a rotation, and within 5 minutes both ways', () => {
        expect(parse({ signed_with: 'older_secret' }).fact).not.toBeNull();
        expect(parse({ age_s: 290 }).fact).not.toBeNull();
        expect(parse({ age_s: -290 }).fact).not.toBeNull();
      });

      it.each<[string, Partial<WebhookOptions>]>([
        ['signed with another secret', { signed_with: 'unknown_secret' }],
        ['too old', { age_s: 310 }],
        ['from the future', { age_s: -310 }],
      ])('are refused: %s', (_, options) => {
        expect(() => parse(options)).toThrow(InvalidSignature);
      });

      it('are refused when one byte differs, white space too, or when the headers are missing or broken', () => {
        expect(() => parse({}, (body) => Buffer.concat([body, Buffer.from(' ')]))).toThrow(InvalidSignature);
        expect(() => parse({}, (body) => Buffer.from(body.toString().replace('1000', '1001')))).toThrow(
          InvalidSignature,
        );
        expect(() => provider().parseWebhook({}, Buffer.from('{}'))).toThrow(InvalidSignature);
        const { headers, rawBody } = harness.webhook({ about: 'charge', metadata, signed_with: 'newest_secret' });
        for (const name of Object.keys(headers)) {
          for (const broken of [undefined, '', 'x', 'v1,', 't=1,v1=']) {
            expect(() => provider().parseWebhook({ ...headers, [name]: broken }, rawBody)).toThrow(InvalidSignature);
          }
        }
      });
    });
  });
}
