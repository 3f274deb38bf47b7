import type { TestProject } from 'vitest/node';
import { startBroker } from '../../scripts/kafka/broker.js';
import { LEFT_OUT, runsKafkaTests } from './suite.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** host:port, comma-separated; empty where there is no broker, and no test that needs one. */
    kafka_brokers: string;
  }
}

/** One Kafka for the whole run, unless KAFKA_BROKERS names one. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = process.env.KAFKA_BROKERS ?? '';
  if (!runsKafkaTests(process.env)) {
    project.provide('kafka_brokers', '');
    // For `npm test`; whoever runs other tests by name has left out more than that.
    return async () => (process.env.npm_lifecycle_event === 'test' ? console.log(LEFT_OUT) : undefined);
  }
  if (given !== '') {
    project.provide('kafka_brokers', given);
    return async () => undefined;
  }
  const broker = await startBroker();
  project.provide('kafka_brokers', broker.address);
  return () => broker.remove();
}
