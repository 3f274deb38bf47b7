import { configDefaults, defineConfig } from 'vitest/config';
import { KAFKA_TESTS, runsKafkaTests } from './test/kafka/suite.js';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, ...(runsKafkaTests(process.env) ? [] : [KAFKA_TESTS])],
    globalSetup: ['test/support/global-setup.ts', 'test/kafka/global-setup.ts'],
    // Files run in processes of their own: module-level state is not shared, as between instances of the service.
    pool: 'forks',
    testTimeout: 20_000,
    hookTimeout: 30_000,
    teardownTimeout: 30_000,
  },
});
