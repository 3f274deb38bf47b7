/**
 * `npm run openapi` writes openapi/openapi.json from the routes; `npm run openapi -- --check` fails where it is not what
 * the routes say. Needs no database: nothing is asked of it.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { format, resolveConfig } from 'prettier';
import { buildApp } from '../src/app.js';
import { parseConfig } from '../src/config.js';
import { openDatabase } from '../src/database/database.js';
import { createLogger } from '../src/logger.js';
import { createMetrics } from '../src/metrics.js';
import { createPayments } from '../src/payments/context.js';
import { createProviders } from '../src/providers/registry.js';

const FILE = new URL('../openapi/openapi.json', import.meta.url);

async function generate(): Promise<string> {
  const config = parseConfig({ PROVIDERS: 'instant' });
  const database = openDatabase('postgres://nobody@127.0.0.1:1/nothing', { pool_size: 1 });
  const logger = createLogger('silent');
  const metrics = createMetrics();
  const payments = createPayments({
    pool: database.pool,
    providers: await createProviders(config, { sandbox_url: null, sandbox_webhook_secrets: [] }),
    installation_id: 'openapi',
    timing: config.timing,
    retention_ms: 0,
    auto_refund_anomalies: false,
    metrics,
    logger,
  });
  const app = await buildApp({ config, database, payments, metrics, logger });
  const document = JSON.stringify(app.swagger());
  await app.close();
  await database.close();
  return format(document, { ...(await resolveConfig(FILE)), parser: 'json' });
}

const document = await generate();
if (process.argv.includes('--check')) {
  if (readFileSync(FILE, 'utf8') !== document) {
    console.error('openapi/openapi.json is not what the routes say. Run: npm run openapi');
    process.exitCode = 1;
  }
} else {
  writeFileSync(FILE, document);
}
