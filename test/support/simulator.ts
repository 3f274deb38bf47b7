import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { CallRecord, MoneyOperation, Movement } from '../../src/simulator/records.js';
import { ledgerFile, startSimulator } from '../../src/simulator/server.js';

type NextOperation = Exclude<MoneyOperation, 'charge'>;
/** What the simulator answers on its own routes; docs/simulator.md. */
export type SimulatorPayment = {
  readonly id: string;
  readonly reference: string;
  readonly status: string;
  readonly amount_minor: number;
  readonly amount_captured_minor: number;
  readonly amount_refunded_minor: number;
  readonly currency: string;
  readonly failure_code: string | null;
  readonly next_action: { readonly type: string; readonly url: string } | null;
  readonly metadata: Readonly<Record<string, string>>;
};
export type SimulatorRefund = {
  readonly id: string;
  readonly reference: string | null;
  readonly payment_id: string;
  readonly status: string;
  readonly amount_minor: number;
};
export type SimulatorEvent = {
  readonly id: string;
  readonly type: string;
  readonly is_delivered: boolean;
  readonly body: { readonly data: { readonly payment: SimulatorPayment; readonly refund?: SimulatorRefund } };
};

/** A running simulator, seen from a test. A `payment_id` is the simulator's own or our reference (provider key). */
export interface SimulatorControl {
  readonly url: string;
  readonly webhook_secret: string;
  calls(filter?: Readonly<Record<string, string>>): Promise<Omit<CallRecord, 'number'>[]>;
  movements(filter?: Readonly<Record<string, string>>): Promise<Movement[]>;
  events(): Promise<SimulatorEvent[]>;
  payments(reference: string): Promise<SimulatorPayment[]>;
  next(payment_id: string, operation: NextOperation, behaviour: string): Promise<void>;
  forgetKeys(): Promise<void>;
  complete(payment_id: string, result: 'succeeded' | 'failed'): Promise<SimulatorPayment>;
  /** At the provider's own dashboard: without our key or reference. */
  dashboard(payment_id: string, operation: NextOperation, amount_minor?: number): Promise<{ readonly id: string }>;
  refundStatus(refund_id: string, status: 'succeeded' | 'failed' | 'canceled'): Promise<SimulatorRefund>;
  expire(payment_id: string): Promise<SimulatorPayment>;
  /** Sends an event again, `times` at once; tells what each was answered. */
  resend(event_id: string, times?: number): Promise<(number | 'no_answer')[]>;
  /** Signs and sends any event once; tells what it was answered. A text is sent as it is. */
  emit(
    body: unknown,
    options?: { event_id?: string; sent_at_offset_s?: number },
  ): Promise<{ event_id: string; result: number | 'no_answer' }>;
}

export interface SimulatorSetup {
  /** 0, the default: a free one. */
  readonly port?: number;
  /** Kept, where it is given; else a new one that `stop` removes. */
  readonly data_dir?: string;
  readonly webhook_url?: string;
  readonly webhook_secret?: string;
}

export interface SimulatorProcess extends SimulatorControl {
  readonly data_dir: string;
  readonly pid: number;
  /** SIGTERM; resolves with the exit code. Removes what it kept, unless the test named the folder. */
  stop(): Promise<number | null>;
  /** SIGKILL; what it kept stays. */
  kill(): Promise<void>;
  /** Again at the same address, with what it kept. After `kill`. */
  restart(): Promise<SimulatorProcess>;
  /** SIGSTOP and SIGCONT. */
  pause(): void;
  resume(): void;
}

const MAIN = fileURLToPath(new URL('../../src/simulator/main.ts', import.meta.url));

export function newWebhookSecret(): string {
  return `whsec_${randomBytes(24).toString('base64')}`;
}

/** A simulator as a process of its own, that survives when the service is killed, and can be killed. */
export async function startSimulatorProcess(setup: SimulatorSetup = {}): Promise<SimulatorProcess> {
  const data_dir = setup.data_dir ?? (await mkdtemp(join(tmpdir(), 'oncepay-sandbox-')));
  const webhook_secret = setup.webhook_secret ?? newWebhookSecret();
  const child = spawn(process.execPath, ['--import', 'tsx', MAIN], {
    env: {
      ...process.env,
      DATA_DIR: data_dir,
      SANDBOX_PORT: String(setup.port ?? 0),
      SANDBOX_WEBHOOK_URL: setup.webhook_url ?? '',
      SANDBOX_WEBHOOK_SECRETS: webhook_secret,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const url = await addressOf(child);
  return {
    ...controlSimulator(url, webhook_secret),
    data_dir,
    pid: child.pid!,
    async stop() {
      const code = await end(child, 'SIGTERM');
      if (setup.data_dir === undefined) await rm(data_dir, { recursive: true, force: true });
      return code;
    },
    async kill() {
      await end(child, 'SIGKILL');
    },
    restart: () => startSimulatorProcess({ ...setup, port: Number(new URL(url).port), data_dir, webhook_secret }),
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
  };
}

/** A simulator within the test's own process: quicker to start, nothing to kill. */
export async function startSimulatorInside(
  setup: SimulatorSetup = {},
): Promise<SimulatorControl & { stop(): Promise<void> }> {
  const data_dir = setup.data_dir ?? (await mkdtemp(join(tmpdir(), 'oncepay-sandbox-')));
  const webhook_secret = setup.webhook_secret ?? newWebhookSecret();
  const simulator = await startSimulator({
    port: setup.port ?? 0,
    ledger_file: ledgerFile(data_dir),
    webhook_url: setup.webhook_url ?? null,
    webhook_secret,
    log: (line) => console.error(line),
  });
  return {
    ...controlSimulator(simulator.url, webhook_secret),
    async stop() {
      await simulator.close();
      if (setup.data_dir === undefined) await rm(data_dir, { recursive: true, force: true });
    },
  };
}

/** Steers a simulator that runs at an address. */
export function controlSimulator(url: string, webhook_secret: string): SimulatorControl {
  const list = async <Row>(name: string, filter: Readonly<Record<string, string>> = {}): Promise<Row[]> => {
    const query = new URLSearchParams(filter).toString();
    return (await ask<{ data: Row[] }>(`${url}/_sandbox/${name}?${query}`)).data;
  };
  const tell = <T>(name: string, body: object): Promise<T> => ask<T>(`${url}/_sandbox/${name}`, body);
  return {
    url,
    webhook_secret,
    calls: (filter) => list('calls', filter),
    movements: (filter) => list('movements', filter),
    events: () => list('events'),
    async payments(reference) {
      const query = new URLSearchParams({ reference }).toString();
      return (await ask<{ data: SimulatorPayment[] }>(`${url}/payments?${query}`)).data;
    },
    async next(payment_id, operation, behaviour) {
      await tell('next', { payment_id, operation, behaviour });
    },
    async forgetKeys() {
      await tell('forget-keys', {});
    },
    complete: (payment_id, result) => tell('complete', { payment_id, result }),
    dashboard: (payment_id, operation, amount_minor) => tell('dashboard', { payment_id, operation, amount_minor }),
    refundStatus: (refund_id, status) => tell('refund-status', { refund_id, status }),
    expire: (payment_id) => tell('expire', { payment_id }),
    async resend(event_id, times) {
      return (await tell<{ results: (number | 'no_answer')[] }>('resend', { event_id, times })).results;
    },
    emit: (body, options = {}) => tell('emit', { body, ...options }),
  };
}

async function ask<T>(url: string, body?: object): Promise<T> {
  const init = body && { method: 'POST', body: JSON.stringify(body) };
  const response = await fetch(url, { ...init, signal: AbortSignal.timeout(15_000) });
  const answer: unknown = await response.json();
  if (!response.ok) throw new Error(`${url} answered ${response.status}: ${JSON.stringify(answer)}`);
  return answer as T;
}

async function addressOf(child: ChildProcess): Promise<string> {
  const lines = createInterface({ input: child.stdout! });
  for await (const line of lines) {
    const url = /http:\S+/.exec(line)?.[0];
    if (url !== undefined) return url;
  }
  throw new Error(`the simulator did not start (exit code ${child.exitCode ?? 'unknown'})`);
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
  const exited = once(child, 'exit');
  child.kill(signal);
  await exited;
  return child.exitCode;
}
