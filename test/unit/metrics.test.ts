import { describe, expect, it } from 'vitest';
import { type Backlog, createMetrics } from '../../src/metrics.js';

const NONE = { count: 0, oldest_age_s: 0 };
const BACKLOG: Backlog = {
  unknown: { count: 3, oldest_age_s: 12.5 },
  needs_review: { count: 1, oldest_age_s: 600 },
  outbox_pending: NONE,
  outbox_quarantined: NONE,
  open_anomalies: NONE,
};

describe('metrics', () => {
  it('count what they are told, each app for itself', async () => {
    const [one, other] = [createMetrics(), createMetrics()];
    one.observeRequest('/payments/:id', 'GET', 200, 12);
    one.observeRequest('/payments/:id', 'GET', 204, 12);
    one.countIdempotency('replayed');
    one.observeProviderCall('sandbox', 'charge', 'succeeded', 40);
    one.countAttempt('charge', 'started');
    one.countAnomaly('paid_twice');
    one.countWebhook('sandbox', 'applied');
    one.countOutbox('published', 3);
    one.countDeleted('idempotency_record', 500);
    one.observeBatch('reserve', 7);
    one.watchBatcher('reserve', () => 4);
    one.watchPool(() => ({ total: 5, idle: 2, waiting: 1 }));
    const text = await one.registry.metrics();
    for (const line of [
      'oncepay_http_requests_total{route="/payments/:id",method="GET",status="2xx"} 2',
      'oncepay_http_request_duration_seconds_bucket{le="0.01",route="/payments/:id",method="GET",status="2xx"} 0',
      'oncepay_http_request_duration_seconds_bucket{le="0.025",route="/payments/:id",method="GET",status="2xx"} 2',
      'oncepay_idempotency_outcomes_total{outcome="replayed"} 1',
      'oncepay_idempotency_outcomes_total{outcome="resumed"} 0',
      'oncepay_provider_call_duration_seconds_count{provider="sandbox",operation="charge",outcome="succeeded"} 1',
      'oncepay_operation_attempts_total{operation="charge",phase="started"} 1',
      'oncepay_anomalies_total{kind="paid_twice"} 1',
      'oncepay_webhooks_total{provider="sandbox",outcome="applied"} 1',
      'oncepay_outbox_events_total{outcome="published"} 3',
      'oncepay_retention_deleted_total{table="idempotency_record"} 500',
      'oncepay_batch_rows_sum{batcher="reserve"} 7',
      'oncepay_batcher_queued{batcher="reserve"} 4',
      'oncepay_database_connections{state="waiting"} 1',
    ]) {
      expect(text.split('\n')).toContain(line);
    }
    expect(text).toContain('process_cpu_seconds_total');
    expect(await other.registry.metrics()).not.toContain('paid_twice');
  });

  it('show the backlog by one reading per scrape, and say when it is not known', async () => {
    const metrics = createMetrics();
    let reads = 0;
    let away = false;
    metrics.watchBacklog(async () => {
      reads += 1;
      if (away) throw new Error('away');
      return BACKLOG;
    });
    const text = await metrics.registry.metrics();
    expect(reads).toBe(1);
    expect(text).toContain('oncepay_backlog{work="unknown"} 3');
    expect(text).toContain('oncepay_backlog_oldest_age_seconds{work="needs_review"} 600');
    expect(text).toContain('oncepay_backlog_known 1');
    away = true;
    const without = await metrics.registry.metrics();
    expect(without).toContain('oncepay_backlog_known 0');
    expect(without).not.toContain('work="unknown"');
  });
});
