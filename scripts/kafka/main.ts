/**
 * `npm run kafka`: a real Kafka on 127.0.0.1:9092 (or `npm run kafka -- --port N`) until Ctrl-C; its data stay in
 * .cache/kafka/data. From Maven Central's jars and Java 17 where there is Java, else with Docker. With KAFKA_BROKERS
 * set there is one already, and this only says whether it answers.
 */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Kafka, logLevel } from 'kafkajs';
import { startBroker } from './broker.js';
import { KAFKA_VERSION, kafkaClassPath, output } from './jars.js';

const DATA = fileURLToPath(new URL('../../.cache/kafka/data', import.meta.url));

const { values } = parseArgs({ options: { port: { type: 'string', default: '9092' } } });
const port = Number(values.port);
const theirs = process.env.KAFKA_BROKERS;

if (theirs !== undefined && theirs !== '') {
  const admin = new Kafka({ clientId: 'look', brokers: theirs.split(','), logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  const { brokers } = await admin.describeCluster();
  await admin.disconnect();
  console.log(`KAFKA_BROKERS=${theirs} answers: ${brokers.length} broker(s). Nothing to start.`);
} else {
  const lacking = await kafkaClassPath().then(
    () => null,
    (error: unknown) => error as Error,
  );
  if (lacking === null) await runWithJava();
  else if (await hasDocker()) runWithDocker();
  else {
    console.error(
      `${lacking.message}\nNo Docker engine either. Install Java 17 and Maven, or set KAFKA_BROKERS to a broker.`,
    );
    process.exitCode = 1;
  }
}

async function runWithJava(): Promise<void> {
  const broker = await startBroker({ port, data_directory: DATA });
  console.log(`Kafka ${KAFKA_VERSION} runs. Start the service with KAFKA_BROKERS=${broker.address}. Ctrl-C ends it.`);
  let ending = false;
  const end = (): void => {
    if (ending) return;
    ending = true;
    void broker.stop().then(() => process.exit(0));
  };
  process.on('SIGINT', end);
  process.on('SIGTERM', end);
  setInterval(() => undefined, 60_000);
}

function hasDocker(): Promise<boolean> {
  return output('docker', ['info']).then(
    () => true,
    () => false,
  );
}

function runWithDocker(): void {
  const image = `apache/kafka:${KAFKA_VERSION}`;
  const settings = {
    KAFKA_NODE_ID: '1',
    KAFKA_PROCESS_ROLES: 'broker,controller',
    KAFKA_CONTROLLER_QUORUM_VOTERS: '1@127.0.0.1:9093',
    KAFKA_LISTENERS: 'PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093',
    KAFKA_ADVERTISED_LISTENERS: `PLAINTEXT://127.0.0.1:${port}`,
    KAFKA_CONTROLLER_LISTENER_NAMES: 'CONTROLLER',
    KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT',
    KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: '1',
    KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: '1',
    KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: '1',
    KAFKA_AUTO_CREATE_TOPICS_ENABLE: 'false',
    KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS: '0',
    KAFKA_HEAP_OPTS: '-Xmx384m',
  };
  const environment = Object.entries(settings).flatMap(([name, value]) => ['--env', `${name}=${value}`]);
  console.log(
    `Kafka ${KAFKA_VERSION} in Docker. Start the service with KAFKA_BROKERS=127.0.0.1:${port}. Ctrl-C ends it.`,
  );
  spawn('docker', ['run', '--rm', '--publish', `127.0.0.1:${port}:9092`, ...environment, image], { stdio: 'inherit' });
}
