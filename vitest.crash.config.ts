import { defineConfig } from 'vitest/config';

/** Set by `npm run test:crash:pgbouncer` alone: the services reach their database through PgBouncer. */
const pooler = process.env.TEST_POOLER === undefined ? [] : ['test/pgbouncer/global-setup.ts'];

/**
 * `npm run test:crash`, `npm run test:soak`, `npm run test:crash:pgbouncer`: processes are killed and databases set back.
 * What a cell waits for is mostly time, so files run side by side.
 */
export default defineConfig({
  test: {
    include: ['test/crash/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts', 'test/crash/global-setup.ts', ...pooler],
    pool: 'forks',
    // Through the pooler the soak runs beside the matrix and the faults.
    maxWorkers: pooler.length === 0 ? 3 : 4,
    testTimeout: 90_000,
    hookTimeout: 90_000,
    teardownTimeout: 30_000,
  },
});
