import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';
import type { SimulatorEvent } from './simulator.js';

export interface ReceivedWebhook {
  readonly id: string;
  readonly type: string;
  readonly payment_status: string;
  readonly body: { readonly type: string; readonly timestamp: string } & SimulatorEvent['body'];
}

export interface WebhookReceiver {
  readonly url: string;
  /** In the order of arrival; only what was signed with the secret and answered. */
  readonly received: readonly ReceivedWebhook[];
  /** What the next requests are answered, first to last; then 200. 0: the connection is dropped. */
  answerNext(...statuses: number[]): void;
  /** Runs before an event is answered. */
  beforeAnswer(run: (event: ReceivedWebhook) => Promise<void> | void): void;
  stop(): Promise<void>;
}

/** Receives webhooks as a service would, and checks their signatures with the scheme's own library. */
export async function startWebhookReceiver(secret: string): Promise<WebhookReceiver> {
  const received: ReceivedWebhook[] = [];
  const answers: number[] = [];
  let hook: (event: ReceivedWebhook) => Promise<void> | void = () => undefined;
  const server = createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on('data', (chunk: Buffer) => chunks.push(chunk));
    req.on('end', () => {
      void (async () => {
        const body = new Webhook(secret).verify(
          Buffer.concat(chunks).toString(),
          req.headers as Record<string, string>,
        ) as ReceivedWebhook['body'];
        const payment_status = (body as { data?: { payment?: { status?: string } } }).data?.payment?.status ?? '';
        const event = { id: String(req.headers['webhook-id']), type: body.type, payment_status, body };
        await hook(event);
        const status = answers.shift() ?? 200;
        if (status === 0) {
          req.socket.destroy();
          return;
        }
        received.push(event);
        res.writeHead(status).end();
      })().catch(() => res.writeHead(400).end());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    received,
    answerNext: (...statuses) => void answers.push(...statuses),
    beforeAnswer: (run) => {
      hook = run;
    },
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
