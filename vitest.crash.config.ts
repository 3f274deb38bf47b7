import { defineConfig } from 'vitest/config';

/** `npm run test:crash`, `npm run test:soak`: processes are killed and databases set back; files run one after the other. */
export default defineConfig({
  test: {
    include: ['test/crash/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts', 'test/crash/global-setup.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 90_000,
    hookTimeout: 90_000,
    teardownTimeout: 30_000,
  },
});
