import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { GeneratorMessage, LoadResult, LoadSpec } from './spec.js';

const GENERATOR = fileURLToPath(new URL('./generator.ts', import.meta.url));

/**
 * Runs the load generator in a process of its own. `onMeasuring` is called when the warm-up is over; `onMeasured` when
 * the result is there, before anything else runs: what the measured time cost is the difference of two looks.
 * @throws where the run had any bad answer: numbers with errors in them are no numbers.
 */
export async function runLoad(
  spec: LoadSpec,
  looks: { onMeasuring?: () => void; onMeasured?: () => void } = {},
): Promise<LoadResult> {
  const child = fork(GENERATOR, [JSON.stringify(spec)], { execArgv: ['--import', 'tsx'] });
  const result = await new Promise<LoadResult>((resolve, reject) => {
    child.on('message', (message: GeneratorMessage) => {
      if (message.type === 'measuring') {
        looks.onMeasuring?.();
      } else {
        looks.onMeasured?.();
        resolve(message.result);
      }
    });
    child.once('error', reject);
    child.once('exit', (code) => {
      reject(new Error(`the load generator ended with code ${code} and no result`));
    });
  });
  const errors = Object.entries(result.errors);
  if (errors.length > 0) {
    throw new Error(`bad answers: ${errors.map(([what, count]) => `${count} × ${what}`).join(', ')}`);
  }
  return result;
}
