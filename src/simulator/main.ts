import { ledgerFile, startSimulator } from './server.js';

/** `npm run sandbox`: the simulated provider as a process of its own, so that it goes on when the service is killed. */
async function main(env: NodeJS.ProcessEnv): Promise<void> {
  const port = Number(env.SANDBOX_PORT || '0');
  if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Error('SANDBOX_PORT must be a port: 0 to 65535');
  const webhook_url = env.SANDBOX_WEBHOOK_URL || null;
  if (webhook_url !== null && !/^https?:/.test(webhook_url)) {
    throw new Error('SANDBOX_WEBHOOK_URL must be an http or https address');
  }
  const webhook_secret = (env.SANDBOX_WEBHOOK_SECRETS ?? '').split(',')[0]?.trim() || null;
  if (webhook_url !== null && webhook_secret === null) {
    throw new Error('SANDBOX_WEBHOOK_SECRETS must hold the secret (whsec_…) that webhooks are signed with');
  }
  const simulator = await startSimulator({
    port,
    host: env.HOST || '127.0.0.1',
    ledger_file: ledgerFile(env.DATA_DIR || '.data'),
    webhook_url,
    webhook_secret,
    log: (line) => console.error(line),
  });
  let isEnding = false;
  const end = () => {
    // Ctrl-C can arrive twice, by the terminal and by npm.
    if (isEnding) return;
    isEnding = true;
    simulator.close().then(
      () => process.exit(0),
      (error: unknown) => fail(error),
    );
  };
  process.on('SIGTERM', end);
  process.on('SIGINT', end);
  console.log(`sandbox listens on ${simulator.url}`);
}

function fail(error: unknown): void {
  console.error(`sandbox: ${error instanceof Error ? error.message : String(error)}`);
  process.exit(1);
}

main(process.env).catch(fail);
