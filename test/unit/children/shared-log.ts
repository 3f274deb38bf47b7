import { setImmediate as turn } from 'node:timers/promises';
import { createLogger, sharedOutput } from '../../../src/logger.js';

// Started by shared-log.test.ts, several at once on one pipe, which is set up as in main.ts.
process.stdout.on('error', () => undefined);
const logger = createLogger('info', sharedOutput());
const [name = '', lines = '0'] = process.argv.slice(2);
for (let line = 0; line < Number(lines); line += 1) {
  logger.info({ name, line, filler: 'x'.repeat(line % 700) });
  if (line % 20 === 0) await turn();
}
process.stderr.write('logged\n');
