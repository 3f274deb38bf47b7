import { read as readArguments, UsageError } from '../clients/command.js';
import { textProblem } from '../contract/text.js';
import type { PrismaClient } from '../database/generated/client.js';
import { containsCardNumber } from '../domain/card-number.js';
import type { PaymentsContext } from '../payments/context.js';
import {
  resolveNamedAnomaly,
  resolveOperation,
  retryOperation,
  type Settled,
  setParkedEventAside,
} from '../payments/operator.js';
import { OperatorRefusal } from '../payments/operator-checks.js';
import { listNeedsReview, listOpenAnomalies, listParkedEvents, listUnknown } from '../store/operator-lists.js';
import { findNamed, type Named } from '../store/operator.js';
import { readDossier } from '../store/payments.js';
import { readTimeline } from '../store/timeline.js';
import { anomalyLine, eventLine, operationLine, section, shownOperation, shownPayment, timelineLine } from './texts.js';

export interface OperationsContext {
  readonly payments: PaymentsContext;
  readonly prisma: PrismaClient;
  /** Whom a retry is recorded under when it names nobody. */
  readonly user: string;
  readonly print: (line: string) => void;
}

type Run = (context: OperationsContext) => Promise<void>;

export const USAGE = `Usage: npm run operations -- <command>

  list [--older-than <seconds>] [--limit <n>]
      what needs an operator, outcomes unknown for longer than that (60), open anomalies, parked provider events
  show <id>
      an operation (or payment), with its payment and all that happened to it
  retry <operation> [--by <name>] [--reason <text>]
      have the provider asked about it now
  resolve <operation> --outcome succeeded|failed --evidence <text> --reason <text> --by <name>
      settle what the provider can't be asked about, by what you have seen there. Of a charge or refund that succeeded,
      the evidence is the provider's id of it. failed is taken only when no request can be under way any more
  resolve <anomaly or parked event> --reason <text> --by <name> [--evidence <text>]
      take it off the list as dealt with; this moves no money

DATABASE_URL or DATA_DIR say which service it is about, PROVIDERS which providers it has.`;

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const DEFAULT_AGE_S = 60;
const DEFAULT_LIMIT = 50;
const MAX_TEXT_LENGTH = 500;
const MAX_NAME_LENGTH = 100;

/**
 * Reads a command line and gives back what it asks for, not yet done.
 * @throws UsageError saying what was not understood
 */
export function parseCommand(args: readonly string[]): Run {
  const [command, ...rest] = args;
  switch (command) {
    case 'list':
      return list(rest);
    case 'show':
      return show(rest);
    case 'retry':
      return retry(rest);
    case 'resolve':
      return resolve(rest);
    case undefined:
      throw new UsageError('A command is missing.');
    default:
      throw new UsageError(`There is no command "${command}".`);
  }
}

/** Ours to tell plainly, without a stack. */
export function isRefusal(error: unknown): error is UsageError | OperatorRefusal {
  return error instanceof UsageError || error instanceof OperatorRefusal;
}

function list(args: readonly string[]): Run {
  const { options } = readArguments(args, 0, ['older-than', 'limit']);
  const age_s = wholeNumber('older-than', options['older-than'] ?? String(DEFAULT_AGE_S), 0, 30 * 24 * 60 * 60);
  const limit = wholeNumber('limit', options.limit ?? String(DEFAULT_LIMIT), 1, 10_000);
  return async ({ payments: { pool }, print }) => {
    // One more than is shown, to know whether there is more.
    const review = await listNeedsReview(pool, limit + 1);
    const unknown = await listUnknown(pool, age_s * 1000, limit + 1);
    const anomalies = await listOpenAnomalies(pool, limit + 1);
    const parked = await listParkedEvents(pool, limit + 1);
    const lines = [
      ...section('Needs an operator', review.map(operationLine), limit),
      ...section(`Outcome unknown for more than ${age_s} s`, unknown.map(operationLine), limit),
      ...section('Anomalies', anomalies.map(anomalyLine), limit),
      ...section('Parked provider events', parked.map(eventLine), limit),
    ];
    for (const line of lines) print(line);
  };
}

function show(args: readonly string[]): Run {
  const { words } = readArguments(args, 1, []);
  const id = idOf(words[0]);
  return async ({ payments: { pool }, prisma, print }) => {
    const named = await find(pool, id);
    if (named.payment_id === null)
      throw new OperatorRefusal('It concerns no payment of ours; list shows all there is.');
    const operation_id = named.type === 'operation' ? { operation_id: named.id } : {};
    const dossier = await readDossier(pool, named.payment_id, operation_id);
    if (!dossier) throw new OperatorRefusal(`There is no payment ${named.payment_id}.`);
    const operation = dossier.operations.find((candidate) => candidate.id === named.id);
    if (operation) for (const line of shownOperation(operation, dossier.payment)) print(line);
    for (const line of shownPayment(dossier.payment)) print(line);
    print('Timeline');
    for (const item of await readTimeline(prisma, named.payment_id)) print(timelineLine(item));
  };
}

function retry(args: readonly string[]): Run {
  const { words, options } = readArguments(args, 1, ['by', 'reason']);
  const id = idOf(words[0]);
  const by = options.by === undefined ? null : name(options.by);
  const reason = options.reason === undefined ? null : text('reason', options.reason);
  return async ({ payments, user, print }) => {
    const named = await find(payments.pool, id);
    if (named.type !== 'operation')
      throw new OperatorRefusal(`${id} is ${NAMES[named.type]}; retry takes an operation.`);
    await retryOperation(payments, id, { by: by ?? user, reason });
    print(`Operation ${id}: the provider is asked about it at once (by a running service).`);
  };
}

function resolve(args: readonly string[]): Run {
  const { words, options } = readArguments(args, 1, ['outcome', 'evidence', 'reason', 'by']);
  const id = idOf(words[0]);
  const reason = text('reason', needed('reason', options.reason));
  const by = name(needed('by', options.by));
  const outcome = options.outcome === undefined ? null : outcomeOf(options.outcome);
  const evidence = options.evidence === undefined ? null : text('evidence', options.evidence);
  return async ({ payments, print }) => {
    const named = await find(payments.pool, id);
    switch (named.type) {
      case 'payment':
        throw new OperatorRefusal(`${id} is a payment; resolve takes an operation, an anomaly or a parked event.`);
      case 'operation': {
        const settled = await resolveOperation(payments, {
          operation_id: id,
          outcome: outcome ?? outcomeOf(needed('outcome', options.outcome)),
          evidence: evidence ?? needed('evidence', options.evidence),
          reason,
          by,
        });
        for (const line of settledLines(id, settled)) print(line);
        return;
      }
      case 'anomaly':
      case 'event':
        if (outcome !== null) throw new UsageError(`${id} is ${NAMES[named.type]}: --outcome is for operations.`);
        if (named.type === 'anomaly') await resolveNamedAnomaly(payments, named, { by, reason, evidence });
        else await setParkedEventAside(payments, id, { by, reason });
        print(`${id} is marked as resolved.`);
    }
  };
}

const NAMES: Readonly<Record<Named['type'], string>> = {
  operation: 'an operation',
  payment: 'a payment',
  anomaly: 'an anomaly',
  event: 'a provider event',
};

async function find(pool: PaymentsContext['pool'], id: string): Promise<Named> {
  const named = await findNamed(pool, id);
  if (!named) throw new OperatorRefusal(`There is no operation, payment, anomaly or provider event ${id}.`);
  return named;
}

function settledLines(id: string, { operation_status, payment_id, payment_status, anomalies }: Settled): string[] {
  return [
    `Operation ${id} is ${operation_status}; payment ${payment_id} is ${payment_status}.`,
    ...anomalies.map((kind) => `This is an anomaly: ${kind}. See list.`),
  ];
}

function idOf(given = ''): string {
  const id = given.toLowerCase();
  if (!UUID_V7.test(id)) throw new UsageError(`"${given}" is no id; take one from list.`);
  return id;
}

function needed(option: string, value: string | undefined): string {
  if (value === undefined) throw new UsageError(`--${option} is needed.`);
  return value;
}

function outcomeOf(value: string): 'succeeded' | 'failed' {
  if (value === 'succeeded' || value === 'failed') return value;
  throw new UsageError('--outcome is succeeded or failed.');
}

function name(value: string): string {
  if (value.length > MAX_NAME_LENGTH) throw new UsageError(`--by has at most ${MAX_NAME_LENGTH} characters.`);
  return text('by', value);
}

/** What is kept, and shown to the client that the payment belongs to. */
function text(option: string, value: string): string {
  const trimmed = value.trim();
  const problem = textProblem(trimmed, { min: 1, max: MAX_TEXT_LENGTH });
  if (problem !== null) throw new UsageError(`--${option} ${problem}.`);
  if (/\p{Cc}/u.test(trimmed)) throw new UsageError(`--${option} must be one line of text.`);
  if (containsCardNumber(trimmed)) throw new UsageError(`--${option} looks like it holds a card number.`);
  return trimmed;
}

function wholeNumber(option: string, value: string, min: number, max: number): number {
  const number = /^\d{1,9}$/.test(value) ? Number(value) : NaN;
  if (number >= min && number <= max) return number;
  throw new UsageError(`--${option} is a whole number from ${min} to ${max}.`);
}
