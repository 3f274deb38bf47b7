import { appendFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Movement } from '../../src/simulator/records.js';
import { ledgerFile } from '../../src/simulator/server.js';
import {
  newWebhookSecret,
  startSimulatorInside,
  startSimulatorProcess,
  type SimulatorControl,
  type SimulatorProcess,
} from '../support/simulator.js';
import { eventually, SimulatorApi } from '../support/simulator-api.js';
import { startWebhookReceiver } from '../support/webhook-receiver.js';

const running: { stop(): Promise<unknown> }[] = [];
afterEach(async () => {
  for (const simulator of running.splice(0).reverse()) await simulator.stop();
});
async function startProcess(...setup: Parameters<typeof startSimulatorProcess>): Promise<SimulatorProcess> {
  const simulator = await startSimulatorProcess(...setup);
  running.push(simulator);
  return simulator;
}
async function killedAndBack(simulator: SimulatorProcess): Promise<SimulatorProcess> {
  await simulator.kill();
  const again = await simulator.restart();
  running.push(again);
  return again;
}

describe('after kill -9 and a new start', () => {
  it('knows its money, its keys, what it was told to do next and what comes later', async () => {
    const first = await startProcess();
    const api = new SimulatorApi(first.url);
    const authorized = await api.charged({ capture: 'manual' });
    const failed = await api.charged({ payment_method: 'pm_decline_then_succeed_2500' });
    await first.next(authorized.id, 'capture', 'pm_decline_processing_error');
    const lost = api.newReference();
    await api.charge(lost, { payment_method: 'pm_commit_then_reset' });
    const unavailable = api.newReference();
    await api.charge(unavailable, { payment_method: 'pm_unavailable_once' });
    const open = api.charge('open', { payment_method: 'pm_slow_60000' });
    await eventually(async () => expect(await first.calls({ reference: 'open' })).toHaveLength(1));
    // What comes later by itself may come at any moment on a slow machine.
    const settled = (movements: Movement[]) => movements.filter((m) => m.reference !== failed.reference);
    const before = settled(await first.movements());

    const second = await killedAndBack(first);
    expect(await open).toBe('no_answer');
    expect(second.url).toBe(first.url);
    expect(settled(await second.movements())).toEqual(before);
    expect(await api.payment(authorized.id)).toEqual(authorized);
    expect(await api.charge(lost, { payment_method: 'pm_commit_then_reset' })).toMatchObject({
      status: 201,
      isReplay: true,
    });
    expect(await api.charge(lost, { amount_minor: 1 })).toMatchObject({ code: 'key_parameters_mismatch' });
    expect(await api.charge(unavailable, { payment_method: 'pm_unavailable_once' })).toMatchObject({ status: 201 });
    expect(await api.post(`/payments/${authorized.id}/capture`, 'capture', {})).toMatchObject({
      code: 'processing_error',
    });
    expect(await second.calls({ reference: 'open' })).toMatchObject([{ answer: 'silent' }]);
    await eventually(async () => expect(await api.payment(failed.id)).toMatchObject({ status: 'succeeded' }));
    expect(await second.movements({ reference: failed.reference })).toHaveLength(1);
    // A forgotten key stays forgotten.
    await second.forgetKeys();
    await killedAndBack(second);
    expect(await api.charge(lost, { payment_method: 'pm_success' })).toMatchObject({ status: 201, isReplay: false });
  });

  it('sends what was not delivered', async () => {
    const webhook_secret = newWebhookSecret();
    const receiver = await startWebhookReceiver(webhook_secret);
    running.push(receiver);
    receiver.answerNext(500);
    const first = await startProcess({ webhook_url: receiver.url, webhook_secret });
    await new SimulatorApi(first.url).charged();
    await eventually(() => expect(receiver.received).toHaveLength(1));
    await killedAndBack(first);
    await eventually(() => expect(receiver.received).toHaveLength(2));
    expect(receiver.received[0]).toEqual(receiver.received[1]);
  });

  it('every charge that was answered is there, under load', async () => {
    const first = await startProcess();
    const api = new SimulatorApi(first.url);
    const answered: string[] = [];
    const load = Array.from({ length: 16 }, async () => {
      for (;;) {
        const reference = api.newReference();
        const answer = await api.charge(reference);
        if (answer === 'no_answer') return;
        answered.push(reference);
      }
    });
    await eventually(() => expect(answered.length).toBeGreaterThan(200));
    await first.kill();
    await Promise.all(load);
    const second = await first.restart();
    running.push(second);
    const moved = new Set((await second.movements()).map((movement) => movement.reference));
    expect(answered.filter((reference) => !moved.has(reference))).toEqual([]);
  });

  it('ends with 0 on SIGTERM, also while a request hangs', async () => {
    const simulator = await startProcess();
    const api = new SimulatorApi(simulator.url);
    const hanging = api.charge('hang', { payment_method: 'pm_commit_then_hang' });
    await eventually(async () => expect(await simulator.movements()).toHaveLength(1));
    expect(await simulator.stop()).toBe(0);
    expect(await hanging).toBe('no_answer');
  });
});

describe('the ledger', () => {
  async function withCharges(): Promise<{ data_dir: string; file: string; reference: string }> {
    const data_dir = await mkdtemp(join(tmpdir(), 'oncepay-ledger-'));
    running.push({ stop: () => rm(data_dir, { recursive: true }) });
    const simulator = await startSimulatorInside({ data_dir });
    const { reference } = await new SimulatorApi(simulator.url).charged();
    await simulator.stop();
    return { data_dir, file: ledgerFile(data_dir), reference };
  }
  async function startInside(data_dir: string): Promise<SimulatorControl> {
    const simulator = await startSimulatorInside({ data_dir });
    running.push(simulator);
    return simulator;
  }

  it('loses a torn last line, and goes on after it', async () => {
    const { data_dir, file, reference } = await withCharges();
    await appendFile(file, '{"payment": {"id": "half');
    const simulator = await startInside(data_dir);
    await new SimulatorApi(simulator.url).charged();
    const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
    expect(() => lines.map((line) => JSON.parse(line))).not.toThrow();
    expect(await simulator.movements({ reference })).toHaveLength(1);
    expect(await simulator.movements()).toHaveLength(2);
  });

  it('is refused when it is damaged anywhere else', async () => {
    const { data_dir, file } = await withCharges();
    await writeFile(file, `${(await readFile(file, 'utf8')).slice(5)}{}\n`);
    await expect(startInside(data_dir)).rejects.toThrow(/damaged in line 1/);
  });

  it('is never written by two: the second to notice tells nothing any more', async () => {
    const { data_dir, file } = await withCharges();
    const simulator = await startInside(data_dir);
    await appendFile(file, '{}\n');
    const api = new SimulatorApi(simulator.url);
    vi.spyOn(console, 'error').mockReturnValue();
    expect(await api.charge('r1')).toMatchObject({ status: 500, code: 'internal' });
    expect((await api.get('/payments?reference=r1')).status).toBe(500);
  });
});
