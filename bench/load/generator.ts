/**
 * The load, in a process of its own: `tsx bench/load/generator.ts '<LoadSpec as JSON>'`, forked by run-load.ts, which
 * hears when the measuring begins and what came of it.
 */
import { createHistogram, performance, type RecordableHistogram } from 'node:perf_hooks';
import { setTimeout as wait } from 'node:timers/promises';
import { Connection, type Answer } from './connection.js';
import { gets, newCharges, replays, type Requests } from './requests.js';
import type { GeneratorMessage, LoadResult, LoadSpec } from './spec.js';

/** Requests that fell due and found no free connection. More than this many seconds of them: the rate is too high. */
const BACKLOG_LIMIT_S = 10;

class Load {
  measuring = false;
  completed = 0;
  readonly histogram: RecordableHistogram = createHistogram();
  readonly errors: Record<string, number> = {};
  readonly connections: readonly Connection[];
  #stopped = false;

  constructor(
    spec: LoadSpec,
    private readonly requests: Requests,
  ) {
    const { hostname, port } = new URL(spec.url);
    this.connections = Array.from({ length: spec.connections }, () => new Connection(hostname, Number(port)));
  }

  stop(): void {
    this.#stopped = true;
    for (const connection of this.connections) connection.close();
  }

  /** Each connection sends when it has its answer. */
  runClosedLoop(): void {
    const sendOn = (connection: Connection): void => {
      if (this.#stopped) return;
      this.#send(connection, performance.now(), sendOn);
    };
    this.connections.forEach(sendOn);
  }

  /** Requests fall due every 1/rate seconds; those that find no free connection wait for one, and that counts. */
  async runOpenLoop(rate_per_s: number): Promise<void> {
    const free = [...this.connections];
    const begun_at = performance.now();
    let sent = 0;
    const dueAt = (index: number): number => begun_at + (index * 1000) / rate_per_s;
    const sendDue = (): void => {
      while (!this.#stopped && dueAt(sent) <= performance.now()) {
        const connection = free.pop();
        if (connection === undefined) return;
        this.#send(connection, dueAt(sent++), (done) => {
          free.push(done);
          sendDue();
        });
      }
    };
    while (!this.#stopped) {
      sendDue();
      if (performance.now() - dueAt(sent) > BACKLOG_LIMIT_S * 1000) {
        this.#countError('rate too high: the backlog never ends');
        this.stop();
      }
      await wait(1);
    }
  }

  #send(connection: Connection, from_ms: number, done: (connection: Connection) => void): void {
    connection.send(this.requests.next(), (answer) => {
      this.#record(answer, from_ms);
      done(connection);
    });
  }

  #record(answer: Answer | Error, from_ms: number): void {
    const wrong = answer instanceof Error ? answer.message : this.requests.judge(answer);
    if (wrong !== null) {
      this.#countError(wrong);
      return;
    }
    if (!this.measuring) return;
    this.completed += 1;
    this.histogram.record(Math.max(1, Math.round((performance.now() - from_ms) * 1e6)));
  }

  #countError(what: string): void {
    this.errors[what] = (this.errors[what] ?? 0) + 1;
  }
}

/** Makes `pool` charges and gives back their texts, to be sent again. */
async function makeCharges(spec: LoadSpec, pool: number): Promise<readonly string[]> {
  const charges = newCharges(spec);
  const texts: string[] = [];
  const { hostname, port } = new URL(spec.url);
  await Promise.all(
    Array.from({ length: spec.connections }, async () => {
      const connection = new Connection(hostname, Number(port));
      while (texts.length < pool) {
        const text = charges.next();
        texts.push(text);
        const answer = await new Promise<Answer | Error>((resolve) => {
          connection.send(text, resolve);
        });
        if (answer instanceof Error) throw answer;
        const wrong = charges.judge(answer);
        if (wrong !== null) throw new Error(`making charges to replay: ${wrong}`);
      }
      connection.close();
    }),
  );
  return texts;
}

async function requestsFor(spec: LoadSpec): Promise<Requests> {
  switch (spec.request.kind) {
    case 'charge':
      return newCharges(spec);
    case 'replay':
      return replays(await makeCharges(spec, spec.request.pool));
    case 'get':
      return gets(spec, spec.request.path);
  }
}

function tell(message: GeneratorMessage): void {
  process.send?.(message);
}

async function main(spec: LoadSpec): Promise<LoadResult> {
  const load = new Load(spec, await requestsFor(spec));
  if (spec.rate_per_s === null) load.runClosedLoop();
  const pacing = spec.rate_per_s === null ? Promise.resolve() : load.runOpenLoop(spec.rate_per_s);
  await wait(spec.warmup_s * 1000);
  tell({ type: 'measuring' });
  const cpu_before = process.cpuUsage();
  const begun_at = performance.now();
  load.measuring = true;
  await wait(spec.measure_s * 1000);
  load.measuring = false;
  const took_s = (performance.now() - begun_at) / 1000;
  const cpu = process.cpuUsage(cpu_before);
  load.stop();
  await pacing;
  const ms = (percentile: number): number => load.histogram.percentile(percentile) / 1e6;
  return {
    completed: load.completed,
    per_s: load.completed / took_s,
    latency: { p50_ms: ms(50), p90_ms: ms(90), p99_ms: ms(99), max_ms: load.histogram.max / 1e6 },
    errors: load.errors,
    generator_cpu: (cpu.user + cpu.system) / 1e6 / took_s,
  };
}

// Whoever asked for the load is gone: it must not go on.
process.once('disconnect', () => process.exit());

const result = await main(JSON.parse(process.argv[2] ?? '') as LoadSpec);
tell({ type: 'result', result });
process.disconnect();
