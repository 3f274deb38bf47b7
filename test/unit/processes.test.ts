import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { addUp, growing, totalText } from '../../src/processes/metrics-total.js';
import { restartPause_ms } from '../../src/processes/workers.js';

async function counted(n: number) {
  const registry = new Registry();
  const registers = [registry];
  new Counter({ name: 'requests_total', help: 'x', labelNames: ['route'], registers }).inc({ route: '/a' }, n);
  new Histogram({ name: 'duration', help: 'x', buckets: [1, 5], registers }).observe(n);
  new Gauge({ name: 'connections', help: 'x', registers }).set(n);
  new Gauge({ name: 'backlog', help: 'x', aggregator: 'max', registers }).set(n);
  // What passes between processes is JSON.
  return JSON.parse(JSON.stringify(await registry.getMetricsAsJSON())) as ReturnType<typeof growing>;
}

function linesOf(text: string): string[] {
  return text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
}

describe('the total of several processes', () => {
  it('adds up what is counted, bucket by bucket, and takes the largest of what all of them read', async () => {
    const total = linesOf(await totalText([await counted(2), await counted(3), await counted(7)]));
    expect(total).toEqual([
      'requests_total{route="/a"} 12',
      'duration_bucket{le="1"} 0',
      'duration_bucket{le="5"} 2',
      'duration_bucket{le="+Inf"} 3',
      'duration_sum 12',
      'duration_count 3',
      'connections 12',
      'backlog 7',
    ]);
  });

  it('keeps of an ended one what only grows, also over several steps', async () => {
    const past = await addUp([growing(await counted(2)), growing(await counted(3))]);
    const total = linesOf(await totalText([past, await counted(4)]));
    expect(total).toContain('requests_total{route="/a"} 9');
    expect(total).toContain('duration_count 3');
    expect(total).toContain('connections 4');
    expect(total).toContain('backlog 4');
  });

  it('of nobody is nothing', async () => {
    expect(linesOf(await totalText([await addUp([])]))).toEqual([]);
  });
});

describe('the pause before a worker is started again', () => {
  it('is none at first, then doubles, up to five seconds', () => {
    expect([0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 5_000].map(restartPause_ms)).toEqual([
      0, 0, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000,
    ]);
  });
});
