import * as http from 'node:http';
import * as https from 'node:https';
import { Webhook } from 'standardwebhooks';
import type { EventRecord } from './records.js';
import type { Store } from './store.js';
import type { Timers } from './timers.js';

const ATTEMPTS = 20;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 30_000;
const ATTEMPT_LIMIT_MS = 10_000;
const AT_ONCE = 32;

/** What came of one sending: the receiver's status, or that there was none. */
export type DeliveryResult = number | 'no_answer';

export interface WebhookTarget {
  readonly url: string;
  /** `whsec_…`: base64 of the key. */
  readonly secret: string;
}

/**
 * Sends events to one receiver by the Standard Webhooks scheme: at least once, again with growing pauses until it
 * answers 2xx, in no order that could be relied on.
 */
export class WebhookSender {
  readonly #url: URL;
  readonly #signer: Webhook;
  readonly #agent: http.Agent;
  readonly #waiting: (() => void)[] = [];
  #active = 0;
  #isClosed = false;

  /** @throws Error where the address or the secret can't be used. */
  constructor(
    target: WebhookTarget,
    private readonly store: Store,
    private readonly timers: Timers,
    private readonly log: (line: string) => void,
  ) {
    this.#url = new URL(target.url);
    if (!target.secret.startsWith('whsec_')) throw new Error('a webhook secret is whsec_ and a key in base64');
    this.#signer = new Webhook(target.secret);
    const Agent = this.#url.protocol === 'https:' ? https.Agent : http.Agent;
    this.#agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE });
  }

  /** In the background, until it is delivered or given up. */
  send(event: EventRecord): void {
    void this.#attempt(event, 1);
  }

  /** Sends and waits for the end of the first attempt; if that fails, more follow in the background. */
  async sendFirst(event: EventRecord): Promise<DeliveryResult> {
    return this.#attempt(event, 1);
  }

  /** One sending and no more, at a time of its own choice. */
  async sendOnce(event_id: string, body: string, sent_at: Date): Promise<DeliveryResult> {
    await this.#enter();
    try {
      return await this.#post(event_id, body, sent_at);
    } finally {
      this.#leave();
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#agent.destroy();
  }

  async #attempt(event: EventRecord, attempt: number): Promise<DeliveryResult> {
    const result = await this.sendOnce(event.id, event.body, new Date());
    if (typeof result === 'number' && result >= 200 && result < 300) {
      this.store.note({ delivered: event.id });
    } else if (attempt >= ATTEMPTS) {
      this.log(`webhook ${event.id} (${event.type}) is given up after ${attempt} attempts, the last: ${result}`);
      this.store.note({ delivered: event.id });
    } else {
      const pause_ms = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (attempt - 1));
      this.timers.after(pause_ms, () => void this.#attempt(event, attempt + 1));
    }
    return result;
  }

  async #enter(): Promise<void> {
    if (this.#active >= AT_ONCE) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#active += 1;
  }

  #leave(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#active -= 1;
  }

  async #post(event_id: string, body: string, sent_at: Date): Promise<DeliveryResult> {
    if (this.#isClosed) return 'no_answer';
    const bytes = Buffer.from(body);
    const headers = {
      'content-type': 'application/json',
      'content-length': bytes.length,
      'webhook-id': event_id,
      'webhook-timestamp': String(Math.floor(sent_at.getTime() / 1000)),
      'webhook-signature': this.#signer.sign(event_id, sent_at, body),
    };
    const request = this.#url.protocol === 'https:' ? https.request : http.request;
    return new Promise((resolve) => {
      const req = request(this.#url, { method: 'POST', headers, agent: this.#agent }, (res) => {
        res.resume();
        res.on('error', () => resolve('no_answer'));
        res.on('end', () => {
          clearTimeout(limit);
          resolve(res.statusCode ?? 'no_answer');
        });
      });
      const limit = setTimeout(() => req.destroy(new Error('no answer in time')), ATTEMPT_LIMIT_MS);
      req.on('error', () => {
        clearTimeout(limit);
        resolve('no_answer');
      });
      req.end(bytes);
    });
  }
}
