import { vi } from 'vitest';

/** Longer than anything takes on a machine that has other work to do: a test that passes never waits for it. */
const LIMIT_MS = 15_000;

/** Repeats a check until it holds. @throws what the check threw last */
export function soon<T>(
  check: () => T | Promise<T>,
  options: { readonly timeout?: number; readonly interval?: number } = {},
): Promise<T> {
  return vi.waitFor(check, { timeout: LIMIT_MS, interval: 25, ...options });
}
