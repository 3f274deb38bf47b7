/**
 * The database's clock, read once and carried on by this process's monotonic one: a stored answer tells the time by the
 * database although it is made before the statement that stores it.
 */
export interface DatabaseClock {
  now(): Date;
}

export function clockFrom(database_now: Date): DatabaseClock {
  const offset_ms = database_now.getTime() - performance.now();
  return { now: () => new Date(Math.floor(offset_ms + performance.now())) };
}

/** A limit within this process, on the monotonic clock. Made before what it limits is asked for, so it errs early. */
export interface Deadline {
  left_ms(): number;
}

export function deadlineIn(duration_ms: number): Deadline {
  const end_ms = performance.now() + duration_ms;
  return { left_ms: () => end_ms - performance.now() };
}
