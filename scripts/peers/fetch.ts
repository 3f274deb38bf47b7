/**
 * Installs the peers of `npm run test:peers` into .cache/peers, where they stay. What can't be had on this machine is
 * left out with one line; with CI=true that is a failure.
 */
import { execFileSync } from 'node:child_process';
import { isInstalled, LOCALSTRIPE, mustHavePeers, type Peer, STRIPE_MOCK } from './peers.js';

/** go install compiles; a cold module cache takes half a minute. */
const INSTALL_TIMEOUT_MS = 5 * 60_000;

for (const peer of [STRIPE_MOCK, LOCALSTRIPE]) {
  if (isInstalled(peer)) continue;
  const lacking = install(peer);
  if (lacking === null) console.log(`${peer.name}: installed`);
  else {
    console.log(`${peer.name}: left out, ${lacking}`);
    if (mustHavePeers()) process.exitCode = 1;
  }
}

/** Null: installed. Else why not. */
function install(peer: Peer): string | null {
  try {
    execFileSync(peer.needs[0], [peer.needs[1]], { stdio: 'ignore' });
  } catch {
    return `there is no ${peer.needs[0]} here`;
  }
  for (const step of peer.install) {
    try {
      const environment = { ...process.env, ...step.environment };
      execFileSync(step.command, step.arguments, { env: environment, stdio: 'pipe', timeout: INSTALL_TIMEOUT_MS });
    } catch (error) {
      const { stderr, message } = error as Error & { stderr?: Buffer };
      const said = stderr?.toString().trim().split('\n').at(-1);
      return `${step.command} failed: ${said ? said : message}`;
    }
  }
  return isInstalled(peer) ? null : `${peer.program} is not there after its installation`;
}
