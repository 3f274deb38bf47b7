import { describe, expect, it } from 'vitest';
import { LastUse } from '../../../src/clients/last-use.js';

describe('the times of last use', () => {
  it('are written once per key, however often it was used', async () => {
    const written: string[][] = [];
    const uses = new LastUse(
      async (batch) => void written.push([...batch.keys()]),
      () => undefined,
    );
    for (const id of ['a', 'b', 'a', 'a']) uses.touch(id);
    await uses.flush();
    await uses.flush();
    uses.touch('b');
    await uses.stop();
    expect(written).toEqual([['a', 'b'], ['b']]);
  });

  it('that could not be written are written with the next, and a newer time wins', async () => {
    const errors: unknown[] = [];
    const written: ReadonlyMap<string, Date>[] = [];
    let fails = true;
    const uses = new LastUse(
      async (batch) => {
        if (fails) {
          uses.touch('b');
          throw new Error('away');
        }
        written.push(batch);
      },
      (error) => errors.push(error),
    );
    uses.touch('a');
    await uses.flush();
    expect(errors).toHaveLength(1);
    fails = false;
    await uses.stop();
    expect(written.map((batch) => [...batch.keys()].sort())).toEqual([['a', 'b']]);
  });
});
