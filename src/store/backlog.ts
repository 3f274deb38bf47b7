import type { Pool } from 'pg';
import type { Backlog, Waiting } from '../metrics.js';
import { UNSENT_SINCE } from './outbox.js';

/** Counts stop here: "this many or more" is all that an alarm needs, and a scrape stays cheap in the worst outage. */
const COUNTED_MAX = 10_000;
/** Scrapes that come faster see the same numbers. */
const FRESH_MS = 5_000;

/**
 * Unfinished work as the metrics show it. Each part walks a partial index that holds unfinished rows only, so what is
 * done costs nothing here, however much of it there is.
 */
export function backlogReader(pool: Pool): () => Promise<Backlog> {
  let known: { readonly backlog: Backlog; readonly read_at: number } | null = null;
  return async () => {
    if (known !== null && performance.now() - known.read_at < FRESH_MS) return known.backlog;
    const { rows } = await pool.query<Waiting & { work: keyof Backlog }>({ name: 'backlog', text: BACKLOG });
    const none: Waiting = { count: 0, oldest_age_s: 0 };
    const backlog: Backlog = {
      unknown: none,
      needs_review: none,
      outbox_pending: none,
      outbox_quarantined: none,
      open_anomalies: none,
      ...Object.fromEntries(rows.map(({ work, count, oldest_age_s }) => [work, { count, oldest_age_s }])),
    };
    known = { backlog, read_at: performance.now() };
    return backlog;
  };
}

const PARTS: Readonly<Record<keyof Backlog, string>> = {
  unknown: `select created_at as since from operation
    where check_at is not null and status = 'processing' and needs_review_at is null
      and (attempts_finished > 0 or check_at <= clock_timestamp()) order by check_at`,
  needs_review: `select needs_review_at as since from operation where needs_review_at is not null order by needs_review_at`,
  outbox_pending: UNSENT_SINCE,
  outbox_quarantined: `select quarantined_at as since from outbox_event
    where quarantined_at is not null order by quarantined_at`,
  open_anomalies: `select created_at as since from anomaly where resolved_at is null order by created_at`,
};

const BACKLOG = Object.entries(PARTS)
  .map(
    ([work, rows]) => `
      select '${work}' as work, count(*)::int as count,
        coalesce(greatest(extract(epoch from clock_timestamp() - min(since)), 0), 0)::float8 as oldest_age_s
      from (${rows} limit ${COUNTED_MAX}) unfinished`,
  )
  .join(' union all ');
