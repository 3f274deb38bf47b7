import { VARIABLES } from '../../src/config-variables.js';
import type { Variable } from '../../src/config-variables.js';

const variables: [string, Variable<unknown>][] = Object.entries(VARIABLES);

/** .env.example: every variable, commented out, with its default. */
export function envExample(): string {
  const head = [
    '# Everything that can be set, with its defaults. `npm start` reads a file .env beside it; what the environment has wins.',
    '# Explained in docs/configuration.md. Made from src/config-variables.ts: after a change there, run',
    '# `npx vitest run test/unit/config-docs.test.ts --update`.',
  ];
  const entries = variables.map(([name, { what, unset }]) => {
    const means = 'means' in unset ? [`# Unset: ${plain(unset.means)}.`] : [];
    return [`# ${plain(what)}`, ...means, `#${name}=${'value' in unset ? unset.value : ''}`].join('\n');
  });
  return `${[head.join('\n'), ...entries].join('\n\n')}\n`;
}

/** The table of docs/configuration.md. */
export function configurationTable(): string {
  const rows = variables.map(([name, { what, unset, expected }]) => {
    const fallback = 'value' in unset ? `\`${unset.value}\`` : unset.means;
    return `| \`${name}\` | ${fallback} | ${what} Takes ${expected}. |`;
  });
  return ['| variable | unset | what |', '|---|---|---|', ...rows].join('\n');
}

function plain(text: string): string {
  return text.replaceAll('`', '');
}
