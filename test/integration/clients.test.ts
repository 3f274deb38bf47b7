import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { hashApiKey } from '../../src/clients/api-key.js';
import { bootstrapClient } from '../../src/clients/bootstrap.js';
import { type CommandContext, parseCommand, USAGE } from '../../src/clients/command.js';
import { findValidKeys, KEYS_CHANNEL, recordLastUse } from '../../src/clients/key-store.js';
import { listClients } from '../../src/clients/list.js';
import type { Database } from '../../src/database/database.js';
import { Listener } from '../../src/database/listener.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';

const SOON = { timeout: 10_000, interval: 20 };

let test_database: TestDatabase;
let database: Database;
beforeAll(async () => {
  test_database = await createTestDatabase();
  database = test_database.open({ pool_size: 4 });
});
afterAll(async () => {
  await database.close();
  await test_database.drop();
});
beforeEach(() => database.pool.query('truncate api_client cascade'));

interface Run {
  readonly printed: string[];
  readonly said: string[];
  readonly waited: number;
}

async function run(...args: string[]): Promise<Run> {
  const printed: string[] = [];
  const said: string[] = [];
  let waited = 0;
  const context: CommandContext = {
    pool: database.pool,
    actor: 'cli:tester@here',
    print: (line) => printed.push(line),
    say: (line) => said.push(line),
    untilForgotten: async () => void (waited += 1),
  };
  await parseCommand(args)(context);
  return { printed, said, waited };
}

async function clientOf(key: string): Promise<string | undefined> {
  const [row] = await findValidKeys(database.pool, [hashApiKey(key)]);
  return row?.client_id;
}

async function audits(): Promise<
  { client_id: string; action: string; actor: string; detail: Record<string, unknown> }[]
> {
  const { rows } = await database.pool.query('select client_id, action, actor, detail from client_audit order by id');
  return rows;
}

const keyOf = (made: Run): string => made.printed[0] ?? '';

describe('create', () => {
  it('makes a client and prints its key once, alone on standard output', async () => {
    const made = await run('create', 'shop', '--scopes', 'payments:write,payments:read', '--name', 'The shop');
    expect(made.printed).toEqual([expect.stringMatching(/^oncepay_sk_[\w-]{43}$/)]);
    expect(made.said.join('\n')).not.toContain(keyOf(made));
    expect(await clientOf(keyOf(made))).toBe('shop');
    const { rows } = await database.pool.query('select * from api_key');
    expect(JSON.stringify(rows)).not.toContain(keyOf(made).slice(20));
    expect(await audits()).toEqual([
      {
        client_id: 'shop',
        action: 'client_created',
        actor: 'cli:tester@here',
        detail: { name: 'The shop', scopes: ['payments:write', 'payments:read'], key_id: rows[0].id },
      },
    ]);
  });

  it('refuses an id that is taken, and changes nothing', async () => {
    const first = await run('create', 'shop', '--scopes', 'admin');
    await expect(run('create', 'shop', '--scopes', 'payments:read')).rejects.toThrow('There is a client shop already');
    expect(await clientOf(keyOf(first))).toBe('shop');
    expect(await audits()).toHaveLength(1);
  });
});

describe('rotate', () => {
  it('makes a new key for the same client; the old one goes on for the overlap', async () => {
    const old = keyOf(await run('create', 'shop', '--scopes', 'admin'));
    const rotated = await run('rotate', 'shop', '--overlap', '2');
    expect(await clientOf(old)).toBe('shop');
    expect(await clientOf(keyOf(rotated))).toBe('shop');
    const { rows } = await database.pool.query<{ left_h: number | null }>(
      `select (extract(epoch from expires_at - clock_timestamp()) / 3600)::float8 as left_h from api_key order by id`,
    );
    expect(rows[0]?.left_h).toBeCloseTo(2, 1);
    expect(rows[1]?.left_h).toBeNull();
    expect((await audits()).at(-1)).toMatchObject({ action: 'key_rotated', detail: { overlap_h: 2 } });
  });

  it('does not make a key live longer than it would have', async () => {
    await run('create', 'shop', '--scopes', 'admin');
    await run('rotate', 'shop', '--overlap', '1');
    await run('rotate', 'shop', '--overlap', '48');
    const { rows } = await database.pool.query<{ left_h: number }>(
      `select (extract(epoch from expires_at - clock_timestamp()) / 3600)::float8 as left_h from api_key order by id limit 1`,
    );
    expect(rows[0]?.left_h).toBeLessThan(1.1);
  });

  it('without overlap ends the old keys, and waits until nobody remembers them', async () => {
    const old = keyOf(await run('create', 'shop', '--scopes', 'admin'));
    const rotated = await run('rotate', 'shop', '--overlap', '0');
    expect(rotated.waited).toBe(1);
    expect(await clientOf(old)).toBeUndefined();
    expect(await clientOf(keyOf(rotated))).toBe('shop');
  });
});

describe('revoke', () => {
  it('ends a key by its id or by its hint, and waits until nobody remembers it', async () => {
    const first = keyOf(await run('create', 'shop', '--scopes', 'admin'));
    const second = keyOf(await run('rotate', 'shop'));
    const [client] = await listClients(database.pool);
    const revoked = await run('revoke', client?.keys[0]?.id.toUpperCase() ?? '');
    expect(revoked.waited).toBe(1);
    expect(await clientOf(first)).toBeUndefined();
    expect(await clientOf(second)).toBe('shop');
    await run('revoke', second.slice(0, 17));
    expect(await clientOf(second)).toBeUndefined();
    expect((await audits()).map((row) => row.action)).toEqual([
      'client_created',
      'key_rotated',
      'key_revoked',
      'key_revoked',
    ]);
  });

  it('says when a key was revoked before, and writes nothing', async () => {
    const key = keyOf(await run('create', 'shop', '--scopes', 'admin'));
    await run('revoke', key.slice(0, 17));
    const again = await run('revoke', key.slice(0, 17));
    expect(again.said[0]).toContain('already');
    expect(await audits()).toHaveLength(2);
  });

  it('refuses a hint that two keys share, and a key that does not exist', async () => {
    await run('create', 'shop', '--scopes', 'admin');
    await run('rotate', 'shop');
    await database.pool.query(`update api_key set hint = 'oncepay_sk_abcdef'`);
    await expect(run('revoke', 'oncepay_sk_abcdef')).rejects.toThrow('More than one key');
    await expect(run('revoke', 'oncepay_sk_ghijkl')).rejects.toThrow('There is no key');
    await expect(run('revoke', '')).rejects.toThrow('There is no key');
  });
});

describe('scopes, disable, enable', () => {
  it('change what a client may do, with what it was before in the audit', async () => {
    await run('create', 'shop', '--scopes', 'payments:read');
    await run('scopes', 'shop', 'payments:read, payments:write,payments:read');
    expect((await listClients(database.pool))[0]?.scopes).toEqual(['payments:read', 'payments:write']);
    expect((await audits()).at(-1)).toMatchObject({
      action: 'scopes_changed',
      detail: { from: ['payments:read'], to: ['payments:read', 'payments:write'] },
    });
  });

  it('shut a client out and let it in again', async () => {
    const key = keyOf(await run('create', 'shop', '--scopes', 'admin'));
    await run('disable', 'shop');
    expect(await clientOf(key)).toBeUndefined();
    expect((await run('disable', 'shop')).said[0]).toBe('Client shop is disabled already.');
    await run('enable', 'shop');
    expect(await clientOf(key)).toBe('shop');
    expect((await audits()).map((row) => row.action)).toEqual(['client_created', 'client_disabled', 'client_enabled']);
  });

  it.each([
    ['rotate', 'nobody'],
    ['scopes', 'nobody', 'admin'],
    ['disable', 'nobody'],
    ['enable', 'nobody'],
  ])('%s refuses a client that does not exist', async (...args) => {
    await expect(run(...args)).rejects.toThrow('There is no client nobody');
    expect(await audits()).toEqual([]);
  });
});

describe('list', () => {
  it('shows clients and the state of their keys, never a key', async () => {
    const first = keyOf(await run('create', 'shop', '--scopes', 'payments:read', '--name', 'The shop'));
    await run('rotate', 'shop', '--overlap', '1');
    await run('create', 'back-office', '--scopes', 'admin');
    await run('disable', 'back-office');
    const { printed } = await run('list');
    expect(printed).toHaveLength(5);
    expect(printed[0]).toContain('back-office (disabled)');
    expect(printed[2]).toContain('The shop  [payments:read]');
    expect(printed[3]).toMatch(/oncepay_sk_.{6}… {2}expiring until .*never used/);
    expect(printed[4]).toMatch(/… {2}valid {2}made/);
    expect(printed.join('\n')).not.toContain(first);
  });

  it('says so where there are none', async () => {
    expect((await run('list')).printed).toEqual(['There are no clients yet.']);
  });
});

describe('what is not understood', () => {
  it.each([
    [[], 'A command is missing'],
    [['frob'], 'There is no command "frob"'],
    [['create'], 'needs more words'],
    [['create', 'shop'], '--scopes'],
    [['create', 'shop', '--scopes', 'paymets:write'], 'There is no scope "paymets:write"'],
    [['create', 'shop', '--scopes', ''], 'There is no scope ""'],
    [['create', 'Shop', '--scopes', 'admin'], `can't be a client's id`],
    [['create', '../x', '--scopes', 'admin'], `can't be a client's id`],
    [['create', 'x'.repeat(65), '--scopes', 'admin'], `can't be a client's id`],
    [['create', 'shop', 'more', '--scopes', 'admin'], 'What is "more" for?'],
    [['create', 'shop', '--scopes', 'admin', '--color', 'red'], '--color'],
    [['create', 'shop', '--scopes', 'admin', '--name', ''], '--name'],
    [['rotate', 'shop', '--overlap', '-1'], '--overlap'],
    [['rotate', 'shop', '--overlap', '1e3'], '--overlap'],
    [['rotate', 'shop', '--overlap', '721'], '--overlap'],
    [['revoke'], 'needs more words'],
    [['scopes', 'shop'], 'needs more words'],
    [['list', 'shop'], 'What is "shop" for?'],
  ])('%j is refused before anything happens', (args, message) => {
    expect(() => parseCommand(args)).toThrow(message);
    expect(() => parseCommand(args)).toThrow(expect.objectContaining({ name: 'UsageError' }));
  });
});

describe('the first client', () => {
  const KEY = 'a-key-that-somebody-chose';

  it('is made with every scope where there is none, and once by several instances', async () => {
    const made = await Promise.all([1, 2, 3].map(() => bootstrapClient(database.pool, KEY)));
    expect(made.filter(Boolean)).toHaveLength(1);
    const [row] = await findValidKeys(database.pool, [hashApiKey(KEY)]);
    expect(row).toMatchObject({
      client_id: 'default',
      scopes: ['payments:write', 'payments:read', 'commands', 'admin'],
    });
    expect(await audits()).toMatchObject([{ client_id: 'default', action: 'client_created', actor: 'bootstrap' }]);
  });

  it('is not made where a client exists: the key opens nothing', async () => {
    await run('create', 'shop', '--scopes', 'admin');
    expect(await bootstrapClient(database.pool, KEY)).toBe(false);
    expect(await clientOf(KEY)).toBeUndefined();
  });

  it.each(['short', 'with spaces in between it', 'x'.repeat(257), ''])('is refused with the key %j', async (key) => {
    await expect(bootstrapClient(database.pool, key)).rejects.toThrow('BOOTSTRAP_API_KEY');
  });
});

describe('the times of last use', () => {
  it('only ever go forward', async () => {
    await run('create', 'shop', '--scopes', 'admin');
    const id = (await listClients(database.pool))[0]?.keys[0]?.id ?? '';
    const at = (text: string) => new Map([[id, new Date(text)]]);
    await recordLastUse(database.pool, at('2026-02-01T10:00:00Z'));
    await recordLastUse(database.pool, at('2026-01-01T10:00:00Z'));
    expect((await listClients(database.pool))[0]?.keys[0]?.last_used_at).toEqual(new Date('2026-02-01T10:00:00Z'));
  });
});

describe('notifications', () => {
  it('come for what authentication reads, also after a lost connection', async () => {
    let changes = 0;
    const errors: unknown[] = [];
    const listener = new Listener({
      connection_string: test_database.direct_url,
      application_name: 'oncepay key changes',
      channel: KEYS_CHANNEL,
      onEvent: () => (changes += 1),
      onError: (error) => errors.push(error),
      reconnect_after_ms: 10,
    });
    await listener.start();
    const seen = async (doing: () => Promise<unknown>): Promise<void> => {
      const before = changes;
      await doing();
      await vi.waitFor(() => expect(changes).toBeGreaterThan(before), SOON);
    };
    await seen(() => run('create', 'shop', '--scopes', 'admin'));
    await seen(() => run('rotate', 'shop'));
    await seen(() => run('scopes', 'shop', 'commands'));
    await seen(() => run('disable', 'shop'));
    await seen(() => run('enable', 'shop'));
    await seen(() =>
      database.pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = 'oncepay key changes' and datname = current_database()`,
      ),
    );
    expect(errors.length).toBeGreaterThan(0);
    await seen(() => run('rotate', 'shop'));
    await listener.stop();
  });

  it('do not come for times of use', async () => {
    await run('create', 'shop', '--scopes', 'admin');
    const heard: string[] = [];
    const listener = new pg.Client({ connectionString: test_database.direct_url });
    await listener.connect();
    await listener.query('listen oncepay_keys_changed');
    await listener.query('listen last');
    listener.on('notification', ({ channel }) => heard.push(channel));
    const [client] = await listClients(database.pool);
    await recordLastUse(database.pool, new Map(client?.keys.map((key) => [key.id, new Date()])));
    // Notifications come in the order of the commits: had there been one, it would stand before this.
    await database.pool.query('notify last');
    await vi.waitFor(() => expect(heard).toContain('last'), SOON);
    expect(heard).toEqual(['last']);
    await listener.end();
  });
});

describe('the command line', () => {
  const MAIN = fileURLToPath(new URL('../../src/clients/main.ts', import.meta.url));

  function main(
    args: readonly string[],
    env: NodeJS.ProcessEnv,
  ): Promise<{ code: number | null; out: string; err: string }> {
    const child = spawn(process.execPath, ['--import', 'tsx', MAIN, ...args], { env: { ...process.env, ...env } });
    let [out, err] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()));
    return new Promise((resolve) => child.once('close', (code) => resolve({ code, out, err })));
  }

  it(
    'ends with 0 and the key alone on standard output, 2 for what is unknown, 1 where there is no database',
    { timeout: 60_000 },
    async () => {
      const { env } = test_database;
      const [made, unknown, misspelt, away, help] = await Promise.all([
        main(['create', 'shop', '--scopes', 'payments:read'], env),
        main(['rotate', 'nobody'], env),
        main(['craete'], env),
        main(['list'], { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/nothing' }),
        main(['--help'], {}),
      ]);
      expect(made).toMatchObject({ code: 0, out: expect.stringMatching(/^oncepay_sk_[\w-]{43}\n$/) });
      expect(await clientOf(made.out.trim())).toBe('shop');
      expect(unknown).toEqual({ code: 2, out: '', err: 'There is no client nobody; see "list"\n' });
      expect(misspelt).toEqual({ code: 2, out: '', err: `There is no command "craete".\n\n${USAGE}\n` });
      expect(away).toMatchObject({
        code: 1,
        out: '',
        err: expect.stringMatching(/^The database can't be reached: .*\n$/),
      });
      expect(help).toEqual({ code: 0, out: `${USAGE}\n`, err: '' });
    },
  );
});
