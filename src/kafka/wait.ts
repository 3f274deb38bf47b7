import { setTimeout as delay } from 'node:timers/promises';

/** A sleep that can be ended early. What wakes it before it begins is not lost. */
export class WakeUp {
  private woken = false;
  private resolve: (() => void) | null = null;

  wake(): void {
    this.woken = true;
    this.resolve?.();
  }

  /** Sleeps until woken, at most for `limit_ms`. @returns whether it was woken */
  async sleep(limit_ms: number): Promise<boolean> {
    if (!this.woken) {
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.resolve = resolve;
        timer = setTimeout(resolve, limit_ms);
      });
      clearTimeout(timer);
      this.resolve = null;
    }
    const { woken } = this;
    this.woken = false;
    return woken;
  }
}

/** Capped exponential backoff with jitter, in milliseconds; `tries` counts from 1. */
export function backoff_ms(tries: number, limits: { readonly first_ms: number; readonly max_ms: number }): number {
  const whole = Math.min(limits.max_ms, limits.first_ms * 2 ** Math.min(tries - 1, 20));
  return whole * (0.5 + Math.random() / 2);
}

/** Sleeps for `limit_ms`, or until the signal ends it. Never throws. */
export async function pause(limit_ms: number, signal: AbortSignal): Promise<void> {
  await delay(limit_ms, undefined, { signal }).catch(() => undefined);
}
