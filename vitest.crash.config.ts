import { defineConfig } from 'vitest/config';

/** `npm run test:crash`, `npm run test:soak`: processes are killed and databases set back. What a cell waits for is mostly time, so files run side by side. */
export default defineConfig({
  test: {
    include: ['test/crash/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts', 'test/crash/global-setup.ts'],
    pool: 'forks',
    maxWorkers: 3,
    testTimeout: 90_000,
    hookTimeout: 90_000,
    teardownTimeout: 30_000,
  },
});
