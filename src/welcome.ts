import type { StartFacts } from './foundation.js';

/** What `npm start` prints: where everything is, and a line that charges when pasted into a shell. */
export function welcomeText(facts: StartFacts): string {
  const lines: [string, string | null][] = [
    ['Oncepay', facts.address],
    ['Documentation', `${facts.address}/docs`],
    ['Data', facts.data_dir],
    ['Database', facts.database_directory],
    ['API key', facts.api_key_file],
    ['Sandbox', facts.sandbox_url],
  ];
  const table = lines
    .filter((line): line is [string, string] => line[1] !== null)
    .map(([name, value]) => `  ${name.padEnd(14)} ${value}`);
  return ['', ...table, '', '  A charge, to paste into a shell:', '', curlLine(facts), ''].join('\n');
}

/** Each paste is another payment: its key and its external id are made by the shell. */
function curlLine(facts: StartFacts): string {
  const payment = {
    amount: '12.50',
    currency: 'EUR',
    customer_id: 'customer-1',
    ...(facts.default_provider === 'stripe' ? { payment_method: 'pm_card_visa' } : {}),
  };
  const body = JSON.stringify(payment).slice(0, -1) + `,"external_payment_id":"order-'$(date +%s%N)'"}`;
  return [
    `curl -sS ${facts.address}/payments`,
    `-H "Authorization: Bearer ${bearer(facts)}"`,
    `-H "Idempotency-Key: try-$(date +%s%N)"`,
    `-H 'Content-Type: application/json'`,
    `-d '${body}'`,
  ].join(' ');
}

function bearer(facts: StartFacts): string {
  if (facts.api_key_file !== null) return `$(cat ${shellQuoted(facts.api_key_file)})`;
  return facts.has_bootstrap_key ? '$BOOTSTRAP_API_KEY' : '$ONCEPAY_API_KEY';
}

/** For a path within $(…): plain where that is enough. */
function shellQuoted(text: string): string {
  return /^[\w./+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
