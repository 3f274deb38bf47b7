import { fork } from 'node:child_process';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { loadSpec, say, type Context, type Section } from '../context.js';
import { runLoad } from '../load/run-load.js';
import { decimal, whole } from '../numbers.js';

const STUB = fileURLToPath(new URL('../load/stub-server.ts', import.meta.url));

/** What the load generator can do by itself: how far from its limit the other numbers are. */
export async function measureGenerator(context: Context): Promise<Section> {
  const stub = fork(STUB, [], { execArgv: ['--import', 'tsx'] });
  try {
    const address = await new Promise<AddressInfo>((resolve, reject) => {
      stub.once('message', resolve);
      stub.once('error', reject);
    });
    const load = await runLoad(loadSpec(context, `http://127.0.0.1:${address.port}`, { warmup_s: 1, measure_s: 2 }));
    say(`load generator against a server that does nothing: ${whole(load.per_s)}/s`);
    return {
      title: 'The load generator',
      goals: [],
      lines: [
        `A process of its own (\`bench/load/\`), one request under way per connection, no pipelining. Against a server that ` +
          `answers at once it sends ${whole(load.per_s)} charges per second with ${decimal(load.generator_cpu)} of a core: ` +
          `what it uses at lower rates stands beside them below.`,
      ],
    };
  } finally {
    stub.disconnect();
  }
}
