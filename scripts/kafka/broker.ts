import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, openSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Kafka, logLevel } from 'kafkajs';
import { freePort } from '../free-port.js';
import { KAFKA_VERSION, kafkaClassPath, output } from './jars.js';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const TEMPLATE = fileURLToPath(new URL(`../../.cache/kafka/${KAFKA_VERSION}/formatted`, import.meta.url));
const CLUSTER_ID = 'b25jZXBheS1sb2NhbC0wMQ';
const HOST = '127.0.0.1';
const READY_LIMIT_MS = 60_000;
const STOP_LIMIT_MS = 15_000;

export interface BrokerOptions {
  /** A free one by default. */
  readonly port?: number;
  /** Kept over restarts where given; otherwise a temporary one, removed with `remove`. */
  readonly data_directory?: string;
  readonly heap_mb?: number;
}

/** One Apache Kafka node (KRaft, broker and controller in one) as a child process. */
export interface Broker {
  /** For KAFKA_BROKERS. */
  readonly address: string;
  readonly log_file: string;
  /** Starts it again on the same port with the same data. */
  start(): Promise<void>;
  /** Ends it in order (SIGTERM), as an operator would. */
  stop(): Promise<void>;
  /** kill -9. */
  kill(): Promise<void>;
  /** Kills it and removes its data, where they are temporary. */
  remove(): Promise<void>;
}

/**
 * Starts a real Kafka, ready when it answers. Takes about 3 s (the first time on a machine: the download too).
 * @throws Error that says what is missing on this machine, or the broker's last words
 */
export async function startBroker(options: BrokerOptions = {}): Promise<Broker> {
  const class_path = await kafkaClassPath();
  const directory = options.data_directory ?? (await mkdtemp(join(tmpdir(), 'oncepay-kafka-')));
  const port = options.port ?? (await freePort());
  const controller_port = await freePort();
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, 'server.properties'), properties(directory, port, controller_port));
  if (!existsSync(join(directory, 'log', 'meta.properties'))) {
    await format(class_path, directory);
  }
  const log_file = join(directory, 'broker.log');
  const address = `${HOST}:${port}`;
  let child: ChildProcess | null = null;
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (child !== null) await endProcess(child, signal);
    child = null;
  };
  const broker: Broker = {
    address,
    log_file,
    async start() {
      if (child !== null) return;
      child = launch(class_path, directory, log_file, options.heap_mb ?? 384);
      await ready(address, child, log_file);
    },
    stop: () => end('SIGTERM'),
    kill: () => end('SIGKILL'),
    async remove() {
      await end('SIGKILL');
      if (options.data_directory === undefined) await rm(directory, { recursive: true, force: true });
    },
  };
  await broker.start();
  return broker;
}

function launch(class_path: string, directory: string, log_file: string, heap_mb: number): ChildProcess {
  const log = openSync(log_file, 'a');
  const java = [
    `-Xmx${heap_mb}m`,
    // Starts twice as fast as with the optimising compiler, and takes little memory.
    '-XX:TieredStopAtLevel=1',
    '-XX:+UseSerialGC',
    `-Dlog4j2.configurationFile=${join(HERE, 'log4j2.yaml')}`,
  ];
  const args = [...java, '-cp', class_path, 'kafka.Kafka', join(directory, 'server.properties')];
  return spawn('java', args, { stdio: ['ignore', log, log] });
}

async function ready(address: string, child: ChildProcess, log_file: string): Promise<void> {
  const kafka = new Kafka({ clientId: 'ready', brokers: [address], logLevel: logLevel.NOTHING, retry: { retries: 0 } });
  const give_up_at = performance.now() + READY_LIMIT_MS;
  for (;;) {
    if (child.exitCode !== null || child.signalCode !== null) {
      throw new Error(`Kafka ended while starting; see ${log_file}`);
    }
    const admin = kafka.admin();
    try {
      await admin.connect();
      if ((await admin.describeCluster()).brokers.length > 0) return;
    } catch (error) {
      if (performance.now() > give_up_at) throw new Error(`Kafka did not get ready; see ${log_file}`, { cause: error });
    } finally {
      await admin.disconnect();
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

function endProcess(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) {
      resolve();
      return;
    }
    const force = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS);
    child.once('exit', () => {
      clearTimeout(force);
      resolve();
    });
    child.kill(signal);
  });
}

/** Formatting takes a second of Java: done once, then copied. */
async function format(class_path: string, directory: string): Promise<void> {
  if (!existsSync(TEMPLATE)) {
    const scratch = await mkdtemp(join(tmpdir(), 'oncepay-kafka-format-'));
    await writeFile(join(scratch, 'server.properties'), properties(scratch, 9092, 9093));
    const args = ['format', '-t', CLUSTER_ID, '-c', join(scratch, 'server.properties')];
    await output('java', [
      '-Xmx128m',
      '-XX:TieredStopAtLevel=1',
      '-cp',
      class_path,
      'kafka.tools.StorageTool',
      ...args,
    ]);
    const beside = `${TEMPLATE}-${process.pid}`;
    await cp(join(scratch, 'log'), beside, { recursive: true });
    await rename(beside, TEMPLATE).catch((error: unknown) => {
      if (!existsSync(TEMPLATE)) throw error;
    });
    await rm(scratch, { recursive: true, force: true });
  }
  await cp(TEMPLATE, join(directory, 'log'), { recursive: true });
}

function properties(directory: string, port: number, controller_port: number): string {
  const settings = {
    'process.roles': 'broker,controller',
    'node.id': '1',
    'controller.quorum.voters': `1@${HOST}:${controller_port}`,
    listeners: `PLAINTEXT://${HOST}:${port},CONTROLLER://${HOST}:${controller_port}`,
    'advertised.listeners': `PLAINTEXT://${HOST}:${port}`,
    'controller.listener.names': 'CONTROLLER',
    'listener.security.protocol.map': 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'log.dirs': join(directory, 'log'),
    'num.partitions': '4',
    'offsets.topic.replication.factor': '1',
    'offsets.topic.num.partitions': '4',
    'transaction.state.log.replication.factor': '1',
    'transaction.state.log.min.isr': '1',
    // Topics are made by who owns them, as in production.
    'auto.create.topics.enable': 'false',
    // A lone node gains nothing by waiting for others.
    'group.initial.rebalance.delay.ms': '0',
    'group.min.session.timeout.ms': '1000',
    // After kill -9 the controller lets the broker back in only when its old session is over (9 s by default).
    'broker.session.timeout.ms': '1000',
    'broker.heartbeat.interval.ms': '300',
  };
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('');
}
