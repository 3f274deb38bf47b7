import { parseArgs } from 'node:util';
import type { Pool } from 'pg';
import type { NewApiKey } from './api-key.js';
import { ClientRefusal, createClient, revokeKey, rotateKey, setDisabled, setScopes, type ChangeBy } from './changes.js';
import { listClients, type ListedClient, type ListedKey } from './list.js';
import { isScope, SCOPES, type Scope } from './scopes.js';

/** The command was not understood; nothing was done. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface CommandContext extends ChangeBy {
  readonly pool: Pool;
  /** A new key or the list: what a script wants to read. */
  readonly print: (line: string) => void;
  /** For people. */
  readonly say: (line: string) => void;
  /** Until every instance has let go of what it remembered of keys and clients. */
  readonly untilForgotten: () => Promise<void>;
}

export const USAGE = `Usage: npm run clients -- <command>

  create <client> --scopes <scope,…> [--name <text>]   make a client and its first API key
  list                                                 show clients and their keys
  rotate <client> [--overlap <hours>]                  make a new key; the old ones go on for 24 hours, or --overlap
  revoke <key id or hint>                              end a key at once
  scopes <client> <scope,…>                            set what a client may do
  disable <client>, enable <client>                    shut a client out with all its keys, and let it in again

Scopes: ${SCOPES.join(', ')}
A key is printed once, on standard output alone. DATABASE_URL or DATA_DIR say which service it is about.`;

const CLIENT_ID = /^[a-z0-9][a-z0-9._-]{0,63}$/;
const DEFAULT_OVERLAP_H = 24;
const MAX_OVERLAP_H = 30 * 24;
const MAX_NAME_LENGTH = 200;

type Run = (context: CommandContext) => Promise<void>;

/**
 * Reads a command line and gives back what it asks for, not yet done.
 * @throws UsageError saying what was not understood
 */
export function parseCommand(args: readonly string[]): Run {
  const [command, ...rest] = args;
  switch (command) {
    case 'create':
      return create(rest);
    case 'list':
      return list(rest);
    case 'rotate':
      return rotate(rest);
    case 'revoke':
      return revoke(rest);
    case 'scopes':
      return scopes(rest);
    case 'disable':
    case 'enable':
      return disable(rest, command === 'disable');
    case undefined:
      throw new UsageError('A command is missing.');
    default:
      throw new UsageError(`There is no command "${command}".`);
  }
}

function create(args: readonly string[]): Run {
  const { words, options } = read(args, 1, ['scopes', 'name']);
  const id = clientId(words[0]);
  if (options.scopes === undefined)
    throw new UsageError(`Say what ${id} may do: --scopes ${SCOPES.slice(0, 2).join(',')}`);
  const granted = scopeList(options.scopes);
  const name = options.name ?? id;
  if (name === '' || name.length > MAX_NAME_LENGTH)
    throw new UsageError(`--name has 1 to ${MAX_NAME_LENGTH} characters.`);
  return async (context) => {
    const key = await createClient(context.pool, { id, name, scopes: granted }, context);
    context.say(`Client ${id} is made, with the scopes ${granted.join(', ')}.`);
    showKey(context, key);
  };
}

function list(args: readonly string[]): Run {
  read(args, 0, []);
  return async ({ pool, print }) => {
    const clients = await listClients(pool);
    if (clients.length === 0) print('There are no clients yet.');
    for (const client of clients) for (const line of clientLines(client)) print(line);
  };
}

function rotate(args: readonly string[]): Run {
  const { words, options } = read(args, 1, ['overlap']);
  const id = clientId(words[0]);
  const text = options.overlap ?? String(DEFAULT_OVERLAP_H);
  const overlap_h = /^\d{1,3}(?:\.\d{1,3})?$/.test(text) ? Number(text) : NaN;
  if (!(overlap_h <= MAX_OVERLAP_H)) throw new UsageError(`--overlap is a number of hours from 0 to ${MAX_OVERLAP_H}.`);
  return async (context) => {
    const key = await rotateKey(context.pool, id, overlap_h, context);
    if (overlap_h === 0) {
      await context.untilForgotten();
      context.say(`The keys that ${id} had before no longer work.`);
    } else {
      context.say(`The keys that ${id} had before work for another ${overlap_h} hours.`);
    }
    showKey(context, key);
  };
}

function revoke(args: readonly string[]): Run {
  const { words } = read(args, 1, []);
  const reference = words[0] ?? '';
  return async (context) => {
    const key = await revokeKey(context.pool, reference, context);
    await context.untilForgotten();
    const before = key.revoked_at;
    const what = `Key ${key.id} (${key.hint}…) of ${key.client_id}`;
    context.say(before === null ? `${what} is revoked.` : `${what} was revoked at ${before.toISOString()} already.`);
  };
}

function scopes(args: readonly string[]): Run {
  const { words } = read(args, 2, []);
  const id = clientId(words[0]);
  const granted = scopeList(words[1] ?? '');
  return async (context) => {
    await setScopes(context.pool, id, granted, context);
    await context.untilForgotten();
    context.say(`Client ${id} now has the scopes ${granted.join(', ')}.`);
  };
}

function disable(args: readonly string[], disabled: boolean): Run {
  const { words } = read(args, 1, []);
  const id = clientId(words[0]);
  return async (context) => {
    const changed = await setDisabled(context.pool, id, disabled, context);
    await context.untilForgotten();
    context.say(`Client ${id} is ${disabled ? 'disabled' : 'enabled'}${changed ? '' : ' already'}.`);
  };
}

/** The words and options of a command; more, fewer or unknown ones are refused. */
export function read(args: readonly string[], word_count: number, names: readonly string[]) {
  let parsed;
  try {
    const options = Object.fromEntries(names.map((name) => [name, { type: 'string' as const }]));
    parsed = parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
  const words = parsed.positionals;
  if (words.length < word_count) throw new UsageError('The command needs more words.');
  if (words.length > word_count) throw new UsageError(`What is "${words[word_count] ?? ''}" for?`);
  return { words, options: parsed.values as Readonly<Record<string, string | undefined>> };
}

function clientId(text = ''): string {
  if (CLIENT_ID.test(text)) return text;
  throw new UsageError(
    `"${text}" can't be a client's id: 1 to 64 lower-case letters, digits, dots, dashes and underscores, a letter or digit first.`,
  );
}

function scopeList(text: string): Scope[] {
  const granted = [...new Set(text.split(',').map((scope) => scope.trim()))];
  const unknown = granted.filter((scope) => !isScope(scope));
  if (unknown.length > 0) {
    throw new UsageError(`There is no scope "${unknown.join('", "')}". Scopes: ${SCOPES.join(', ')}`);
  }
  return granted.filter(isScope);
}

function showKey({ say, print }: CommandContext, { key }: NewApiKey): void {
  say('Its new API key, shown this once and kept nowhere:');
  print(key);
}

function clientLines({ id, name, scopes: granted, disabled, keys }: ListedClient): string[] {
  const state = disabled ? ' (disabled)' : '';
  return [`${id}${state}  ${name}  [${granted.join(', ')}]`, ...keys.map((key) => `  ${keyLine(key)}`)];
}

function keyLine({ id, hint, state, created_at, expires_at, last_used_at }: ListedKey): string {
  const until = state === 'expiring' && expires_at !== null ? ` until ${expires_at.toISOString()}` : '';
  const used = last_used_at === null ? 'never used' : `last used ${last_used_at.toISOString()}`;
  return `${id}  ${hint}…  ${state}${until}  made ${created_at.toISOString()}  ${used}`;
}

/** Ours to tell plainly, without a stack. */
export function isRefusal(error: unknown): error is UsageError | ClientRefusal {
  return error instanceof UsageError || error instanceof ClientRefusal;
}
