import type pg from 'pg';
import type { CloudEvent } from './cloud-events.js';

/**
 * The effect of an event, in the transaction that also holds its mark: database work only (R3). May be run again on a
 * serialization failure. What it returns runs after the commit and must not throw; if the process dies before, nobody
 * runs it.
 * @throws Poison for what no repetition makes better
 */
export type EventHandler = (tx: pg.PoolClient, event: CloudEvent, attempt: Attempt) => Promise<AfterCommit | undefined>;
export interface Attempt {
  /** Whatever it throws now makes the message a dead letter. */
  readonly is_last: boolean;
}
export type AfterCommit = () => void | Promise<void>;

export interface EventConsumer {
  /** In the mark and in the group's id: never change it. */
  readonly name: string;
  readonly topic: string;
  readonly handlers: Readonly<Record<string, EventHandler>>;
  /** Types that are none of ours: on a topic of facts others have theirs too; a command that nobody knows is an error. */
  readonly other_types: 'ignore' | 'dead_letter';
}
