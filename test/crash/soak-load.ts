import { randomUUID } from 'node:crypto';
import { type Answered, send } from './scenario.js';

type Json = Readonly<Record<string, unknown>>;

/** One thing that a client wants, with the key that it keeps until it is answered finally. */
export interface Intent {
  readonly key: string;
  readonly path: string;
  readonly body: Json;
  final: Answered | null;
}

/** A payment as the client knows it: what it may ask for next. */
interface Known {
  readonly charge: Json;
  readonly id: string;
  status: string;
}

const METHODS = [
  ...Array.from({ length: 8 }, () => 'pm_success'),
  'pm_decline_card_declined',
  'pm_decline_then_succeed',
  'pm_slow_300',
  'pm_slow_answer_300',
  'pm_commit_then_reset',
  'pm_commit_then_hang',
  'pm_late_commit',
  'pm_unavailable_once',
  'pm_key_in_use_once',
  'pm_async_success',
  'pm_async_failure',
  'pm_webhook_first',
  'pm_webhook_duplicates',
  'pm_webhook_reordered',
  'pm_lookup_lag_500',
] as const;

/** A client that charges, repeats, pays again, captures, cancels and refunds at random, over any instance that answers. */
export class SoakClient {
  readonly intents: Intent[] = [];
  private readonly known: Known[] = [];

  constructor(
    private readonly urls: readonly string[],
    private readonly random: () => number,
  ) {}

  /** One step: an intent, sent once or several times at once, with or without patience. */
  async step(): Promise<void> {
    const intent = this.choose();
    this.intents.push(intent);
    const copies = this.random() < 0.2 ? 3 : 1;
    await Promise.all(Array.from({ length: copies }, () => this.attempt(intent)));
  }

  /** Sends an intent to some instance. No answer, and any that says "again", leaves it unfinished. */
  async attempt(intent: Intent): Promise<boolean> {
    const url = this.pick(this.urls);
    const answer = await send(url, intent).catch(() => undefined);
    if (!answer || !isFinal(answer)) return false;
    if (isForTheMoment(answer) && intent.final) return true;
    const { final } = intent;
    const isSame = final?.text === answer.text && final.status === answer.status;
    if (final && !isSame && !isForTheMoment(final)) {
      throw new Error(`Two final answers to ${intent.key}:\n${final.text}\n${answer.text}`);
    }
    intent.final = answer;
    this.learn(intent, answer);
    return true;
  }

  private choose(): Intent {
    const old = this.known.length > 0 && this.random() < 0.5 ? this.pick(this.known) : undefined;
    if (!old) return this.newCharge();
    if (old.status === 'failed') {
      return intentOf('/payments', { ...old.charge, payment_method: this.pick(METHODS) });
    }
    if (old.status === 'authorized') {
      const route = this.random() < 0.6 ? 'capture' : 'cancel';
      return intentOf(
        `/payments/${old.id}/${route}`,
        route === 'capture' && this.random() < 0.3 ? { amount: '6.00' } : {},
      );
    }
    if (old.status === 'succeeded')
      return intentOf(`/payments/${old.id}/refunds`, this.random() < 0.7 ? { amount: '3.00' } : {});
    return this.newCharge();
  }

  private newCharge(): Intent {
    return intentOf('/payments', {
      amount: '10.00',
      currency: 'EUR',
      customer_id: 'customer-1',
      external_payment_id: `soak-${randomUUID()}`,
      payment_method: this.pick(METHODS),
      ...(this.random() < 0.3 ? { capture: 'manual' } : {}),
    });
  }

  private learn(intent: Intent, { status, json }: Answered): void {
    if (status >= 300) return;
    const id = typeof json.payment_id === 'string' ? json.payment_id : String(json.id);
    const known = this.known.find((payment) => payment.id === id);
    if (json.payment_id !== undefined) return;
    if (known) known.status = String(json.status);
    else if (intent.path === '/payments') this.known.push({ charge: intent.body, id, status: String(json.status) });
  }

  private pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.random() * from.length)] as T;
  }
}

function intentOf(path: string, body: Json): Intent {
  return { key: randomUUID(), path, body, final: null };
}

/** A refusal that is not kept: each of several copies may be told its own, before or after another is done. */
function isForTheMoment({ status, headers }: Answered): boolean {
  return status === 409 && !headers.has('idempotency-key-expires');
}

/** 409 for the moment frees its key: the client looks again before it decides, and here it lets the intent go. */
function isFinal({ status, json }: Answered): boolean {
  if (status === 202 || status >= 500 || status === 429) return false;
  return json.code !== 'idempotency_key_in_progress';
}
