import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { nextCheck } from '../../../src/domain/schedule.js';
import { anOperation, NOW } from '../../support/domain.js';

const PACE = { first_ms: 2_000 };
const inMs = (date: Date | null) => (date === null ? null : date.getTime() - NOW.getTime());
const latest = () => 1;
const earliest = () => 0;

describe('when to ask next', () => {
  it('doubles from the first pause to a quarter of an hour, half of it random', () => {
    const pauses = [0, 1, 2, 8, 9, 30, 1000].map((checks) => inMs(nextCheck(anOperation(), checks, NOW, PACE, latest)));
    expect(pauses).toEqual([2_000, 4_000, 8_000, 512_000, 900_000, 900_000, 900_000]);
    expect(inMs(nextCheck(anOperation(), 1, NOW, PACE, earliest))).toBe(2_000);
  });

  it.each(['requires_action', 'authorized'] as const)('%s has time: minutes, up to an hour', (status) => {
    expect(inMs(nextCheck(anOperation({ status }), 0, NOW, PACE, latest))).toBe(30_000);
    expect(inMs(nextCheck(anOperation({ status }), 20, NOW, PACE, latest))).toBe(3_600_000);
  });

  it('a declined charge that is not closed is looked at a few times', () => {
    const declined = anOperation({ status: 'failed' });
    expect(inMs(nextCheck(declined, 0, NOW, PACE, latest))).toBe(2_000);
    expect(nextCheck(declined, 8, NOW, PACE)).toBeNull();
    expect(nextCheck({ ...declined, closed_at: NOW }, 0, NOW, PACE)).toBeNull();
  });

  it('what has ended, or waits for an operator, is not asked about', () => {
    for (const status of ['succeeded', 'void'] as const) {
      expect(nextCheck(anOperation({ status }), 0, NOW, PACE)).toBeNull();
    }
    for (const kind of ['capture', 'cancel', 'refund'] as const) {
      expect(nextCheck(anOperation({ kind, status: 'failed' }), 0, NOW, PACE)).toBeNull();
    }
    expect(nextCheck(anOperation({ needs_review_at: NOW }), 0, NOW, PACE)).toBeNull();
  });

  it('is always ahead, and never more than an hour', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('processing', 'requires_action', 'authorized', 'failed'),
        fc.nat(5000),
        fc.integer({ min: 50, max: 3_600_000 }),
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        (status, checks, first_ms, random) => {
          const next = inMs(nextCheck(anOperation({ status }), checks, NOW, { first_ms }, () => random));
          expect(next === null || (next >= first_ms / 2 - 1 && next <= 3_600_000) || next >= 450_000).toBe(true);
        },
      ),
    );
  });
});
