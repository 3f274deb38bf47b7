import { configDefaults, defineConfig } from 'vitest/config';
import { KAFKA_TESTS, runsKafkaTests } from './test/kafka/suite.js';

/** They have a server of their own, or none: nothing of theirs would go through the pooler. */
const ELSEWHERE = [
  'test/integration/{embedded,data-dir}.test.ts',
  'test/http/{charge-outage,swagger-ui,openapi,problems}.test.ts',
];

/** `npm run test:pgbouncer`: the suites that reach the database, through PgBouncer in transaction mode. */
export default defineConfig({
  test: {
    include: ['test/{http,integration,pgbouncer,kafka}/**/*.test.ts', 'test/contract/stripe-service.test.ts'],
    exclude: [...configDefaults.exclude, ...ELSEWHERE, ...(runsKafkaTests(process.env) ? [] : [KAFKA_TESTS])],
    globalSetup: ['test/support/global-setup.ts', 'test/kafka/global-setup.ts', 'test/pgbouncer/global-setup.ts'],
    pool: 'forks',
    // What these tests wait for is mostly time, so files run side by side on the smallest machine too.
    maxWorkers: 2,
    testTimeout: 20_000,
    hookTimeout: 30_000,
    teardownTimeout: 30_000,
  },
});
