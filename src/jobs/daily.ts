/** The next time that it is `hour_utc` o'clock UTC, after `now`. */
export function nextDaily(now: Date, hour_utc: number): Date {
  const next = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate(), hour_utc));
  return next > now ? next : new Date(next.getTime() + 24 * 60 * 60_000);
}

/**
 * A round for a loop that looks often: runs `work` once after each time that it is `hour_utc` o'clock UTC. Work that fails
 * is due still, and the next look tries it again.
 */
export function dailyRound(hour_utc: number, work: () => Promise<unknown>, now: () => Date): () => Promise<boolean> {
  let due = nextDaily(now(), hour_utc);
  return async () => {
    if (now() < due) return false;
    await work();
    due = nextDaily(now(), hour_utc);
    return false;
  };
}
