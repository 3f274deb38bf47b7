import { Counter, Gauge, type Registry } from 'prom-client';

/** What became of a message that came in. */
export type ConsumedOutcome = 'applied' | 'duplicate' | 'ignored' | 'retried' | 'dead_letter';

export interface ConsumerMetrics {
  count(consumer: string, outcome: ConsumedOutcome): void;
  /** Messages of a partition that are not processed yet, as of the batch that was read last. */
  setLag(consumer: string, topic: string, partition: number, messages: number): void;
  /** Partitions that a rebalance took away are not ours to report on. */
  forgetLag(consumer: string): void;
}

export function createConsumerMetrics(registry: Registry): ConsumerMetrics {
  const outcomes = new Counter({
    name: 'oncepay_consumed_messages_total',
    help: 'Messages from Kafka by what became of them.',
    labelNames: ['consumer', 'outcome'],
    registers: [registry],
  });
  const lag = new Gauge({
    name: 'oncepay_consumer_lag_messages',
    help: 'Messages of a partition that are not processed yet.',
    labelNames: ['consumer', 'topic', 'partition'],
    registers: [registry],
  });
  const partitions = new Map<string, Set<string>>();
  return {
    count: (consumer, outcome) => outcomes.labels(consumer, outcome).inc(),
    setLag(consumer, topic, partition, messages) {
      lag.labels(consumer, topic, String(partition)).set(messages);
      const known = partitions.get(consumer) ?? new Set();
      partitions.set(consumer, known.add(`${topic} ${partition}`));
    },
    forgetLag(consumer) {
      for (const name of partitions.get(consumer) ?? []) {
        const [topic = '', partition = ''] = name.split(' ');
        lag.remove(consumer, topic, partition);
      }
      partitions.delete(consumer);
    },
  };
}
