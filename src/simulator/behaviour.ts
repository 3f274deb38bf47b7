import { FAILURE_CODES, type MoneyOperation } from './records.js';

/** What a `pm_…` word makes the provider do. */
export interface Behaviour {
  /** Waits before it commits. */
  readonly before_ms: number;
  /** Drops the connection first and commits so much later; null: no. */
  readonly late_commit_ms: number | null;
  readonly result: 'success' | 'decline' | 'requires_action' | 'processing';
  /** For `decline` and for an end that is a failure. */
  readonly failure_code: string;
  /** What it becomes later by itself. */
  readonly later: { readonly after_ms: number; readonly result: 'succeeded' | 'failed' } | null;
  /** `error`: commits, then answers 500, now and whenever the key comes back. */
  readonly answer: 'answer' | 'hang' | 'reset' | 'error';
  /** Waits after the commit, before the answer. */
  readonly after_ms: number;
  /** How long its look-up by reference lags. */
  readonly lookup_lag_ms: number;
  /** Answers this the first time, without moving anything. */
  readonly once: { readonly status: number; readonly code: string } | null;
  readonly webhooks: 'normal' | 'first' | 'duplicates' | 'reordered';
  readonly other_amount_minor: number | null;
  readonly other_currency: string | null;
}

const NORMAL: Behaviour = {
  before_ms: 0,
  late_commit_ms: null,
  result: 'success',
  failure_code: 'card_declined',
  later: null,
  answer: 'answer',
  after_ms: 0,
  lookup_lag_ms: 0,
  once: null,
  webhooks: 'normal',
  other_amount_minor: null,
  other_currency: null,
};

const LONGEST_MS = 600_000;
const LATER_MS = 2_000;
const ASYNC_MS = 500;
const MOST_WORDS = 4;

type Make = (argument: string) => Partial<Behaviour> | null;

/** The longest names come first: `pm_slow_answer_5` must not be read as a `pm_slow_…`. */
const WORDS: readonly (readonly [RegExp, Make])[] = [
  [/^success$/, () => ({})],
  [/^decline_then_succeed(?:_(\d+))?$/, (ms) => later('decline', ms, LATER_MS, 'succeeded')],
  [/^decline_([a-z_]+)$/, (code) => (isFailureCode(code) ? { result: 'decline', failure_code: code } : null)],
  [/^requires_action$/, () => ({ result: 'requires_action' })],
  [/^slow_(\d+)$/, (ms) => withMs(ms, (before_ms) => ({ before_ms }))],
  [/^slow_answer_(\d+)$/, (ms) => withMs(ms, (after_ms) => ({ after_ms }))],
  [/^lookup_lag_(\d+)$/, (ms) => withMs(ms, (lookup_lag_ms) => ({ lookup_lag_ms }))],
  [/^async_success(?:_(\d+))?$/, (ms) => later('processing', ms, ASYNC_MS, 'succeeded')],
  [/^async_failure(?:_(\d+))?$/, (ms) => later('processing', ms, ASYNC_MS, 'failed')],
  [/^commit_then_hang$/, () => ({ answer: 'hang' })],
  [/^commit_then_reset$/, () => ({ answer: 'reset' })],
  [/^commit_then_error$/, () => ({ answer: 'error' })],
  [/^late_commit(?:_(\d+))?$/, (ms) => withMs(ms || String(LATER_MS), (late_commit_ms) => ({ late_commit_ms }))],
  [/^unavailable_once$/, () => ({ once: { status: 503, code: 'unavailable' } })],
  [/^key_in_use_once$/, () => ({ once: { status: 409, code: 'key_in_use' } })],
  [/^status_([45]\d\d)_once$/, (status) => ({ once: { status: Number(status), code: 'asked_for' } })],
  [/^webhook_(first|duplicates|reordered)$/, (webhooks) => ({ webhooks: webhooks as Behaviour['webhooks'] })],
  [/^other_amount_(\d+)$/, otherAmount],
  [/^other_currency_([A-Z]{3})$/, (other_currency) => ({ other_currency })],
];

/**
 * Reads a behaviour: one `pm_…` word, or up to four joined by `+`. Null: a `pm_…` word that is none. Whatever does not
 * begin with `pm_` is some token of a customer's and simply works.
 */
export function parseBehaviour(text: string | null, operation: MoneyOperation): Behaviour | null {
  if (text?.startsWith('pm_') !== true) return NORMAL;
  const words = text.split('+');
  if (words.length > MOST_WORDS) return null;
  let behaviour = NORMAL;
  for (const word of words) {
    const part = parseWord(word);
    if (!part) return null;
    behaviour = { ...behaviour, ...part };
  }
  return fits(behaviour, operation) ? behaviour : null;
}

function parseWord(word: string): Partial<Behaviour> | null {
  if (!word.startsWith('pm_')) return null;
  for (const [pattern, make] of WORDS) {
    const match = pattern.exec(word.slice('pm_'.length));
    if (match) return make(match[1] ?? '');
  }
  return null;
}

/** Only a charge can wait for the customer or be in another currency; a cancel has no amount and no slow failure. */
function fits(behaviour: Behaviour, operation: MoneyOperation): boolean {
  if (operation === 'charge') return true;
  if (behaviour.result === 'requires_action' || behaviour.other_currency !== null) return false;
  if (operation !== 'cancel') return true;
  return behaviour.other_amount_minor === null && behaviour.later?.result !== 'failed';
}

function isFailureCode(code: string): boolean {
  return (FAILURE_CODES as readonly string[]).includes(code);
}

function withMs(text: string, make: (ms: number) => Partial<Behaviour>): Partial<Behaviour> | null {
  const ms = Number(text);
  return ms <= LONGEST_MS ? make(ms) : null;
}

function later(
  result: Behaviour['result'],
  ms: string,
  default_ms: number,
  end: 'succeeded' | 'failed',
): Partial<Behaviour> | null {
  const failure_code = result === 'processing' ? 'processing_error' : 'card_declined';
  return withMs(ms || String(default_ms), (after_ms) => ({ result, failure_code, later: { after_ms, result: end } }));
}

function otherAmount(text: string): Partial<Behaviour> | null {
  const other_amount_minor = Number(text);
  return Number.isSafeInteger(other_amount_minor) && other_amount_minor > 0 ? { other_amount_minor } : null;
}
