import { configDefaults, defineConfig } from 'vitest/config';
import { KAFKA_TESTS, runsKafkaTests } from './test/kafka/suite.js';

/** `npm run test:pgbouncer`: the suites that reach the database, through PgBouncer in transaction mode. */
export default defineConfig({
  test: {
    include: ['test/{http,integration,pgbouncer,kafka}/**/*.test.ts'],
    exclude: [...configDefaults.exclude, ...(runsKafkaTests(process.env) ? [] : [KAFKA_TESTS])],
    globalSetup: ['test/support/global-setup.ts', 'test/kafka/global-setup.ts', 'test/pgbouncer/global-setup.ts'],
    pool: 'forks',
    testTimeout: 20_000,
    hookTimeout: 30_000,
    teardownTimeout: 30_000,
  },
});
