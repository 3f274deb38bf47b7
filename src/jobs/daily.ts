/** The next time that it is `hour_utc` o'clock UTC, after `now`. */
export function nextDaily(now: Date, hour_utc: number): Date {
  const next = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate(), hour_utc));
  return next > now ? next : new Date(next.getTime() + 24 * 60 * 60_000);
}
