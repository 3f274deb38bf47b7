/** Which of the tests need a broker, and whether this run has one: asked by vitest.config.ts and by the global setup. */

export const KAFKA_TESTS = 'test/kafka/**/*.test.ts';

/**
 * Runs where a broker is named (KAFKA_BROKERS) or asked for (KAFKA_TESTS=1, as `npm run test:kafka` does, and in CI
 * `npm test` and `npm run test:pgbouncer`).
 */
export function runsKafkaTests(env: NodeJS.ProcessEnv): boolean {
  return Boolean(env.KAFKA_BROKERS) || env.KAFKA_TESTS === '1';
}

export const LEFT_OUT = `Left out: ${KAFKA_TESTS} (no broker). Run them with: npm run test:kafka`;
