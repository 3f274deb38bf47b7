import type * as Config from '../../src/config.js';
import type * as Logging from '../../src/logger.js';
import type { Step } from '../../src/payments/context.js';
import type * as Start from '../../src/start.js';

/**
 * The service as main.ts starts it, with a hook that only this file puts in: at the step that the test names, for the next
 * request that gets there, the process kills itself (`die`), or stands still until it is told to go on (`hold`).
 */
export type Order = { readonly at: Step; readonly what: 'die' | 'hold' } | 'go_on';

let order: Exclude<Order, 'go_on'> | null = null;
let goOn: () => void = () => undefined;

process.on('message', (message: Order) => {
  if (message === 'go_on') goOn();
  else order = message;
});

async function atStep(step: Step): Promise<void> {
  if (order?.at !== step) return;
  const { what } = order;
  order = null;
  if (what === 'die') process.kill(process.pid, 'SIGKILL');
  process.send?.({ held: step });
  await new Promise<void>((resolve) => {
    goOn = resolve;
  });
}

// What was built, where it is up to date: it starts in a third of the time.
const folder = new URL(process.env.CRASH_USES_BUILD === '1' ? '../../dist/' : '../../src/', import.meta.url);
const load = async (name: string): Promise<unknown> => import(new URL(`${name}.js`, folder).href);
const { parseConfig } = (await load('config')) as typeof Config;
const { createLogger } = (await load('logger')) as typeof Logging;
const { startService } = (await load('start')) as typeof Start;
const config = parseConfig(process.env);
const service = await startService(config, createLogger(config.log_level), { atStep });
process.on('SIGTERM', () => {
  void service.stop().then(() => process.exit(0));
});
process.send?.({ ready: service.facts.address });
