import type { Logger } from '../logger.js';

/** A job that goes round until it is stopped. */
export interface Loop {
  /** Waits for the round under way; none begins after it. */
  stop(): Promise<void>;
}

export interface LoopOptions {
  readonly name: string;
  readonly interval_ms: number;
  /** One bounded round. True: there is more, come again at once. An error ends the round, never the loop. */
  readonly round: () => Promise<boolean>;
  readonly logger: Logger;
}

/** A failing round waits longer than an idle one: an outage needs no audience. */
const FAILURE_FACTOR = 4;

export function startLoop({ name, interval_ms, round, logger }: LoopOptions): Loop {
  let stopped = false;
  const goesOn = (): boolean => !stopped;
  let wake: () => void = () => undefined;

  async function run(): Promise<void> {
    while (goesOn()) {
      let pause_ms = interval_ms;
      try {
        if (await round()) pause_ms = 0;
      } catch (error) {
        pause_ms = interval_ms * FAILURE_FACTOR;
        logger.warn({ err: error, job: name }, 'a round of a job failed');
      }
      if (goesOn()) await sleep(pause_ms);
    }
  }

  /** With jitter, so that instances started together drift apart. */
  function sleep(pause_ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, pause_ms * (0.75 + Math.random() / 2));
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  const running = run();
  return {
    async stop() {
      stopped = true;
      wake();
      await running;
    },
  };
}
