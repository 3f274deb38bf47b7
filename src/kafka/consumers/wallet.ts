import { newId } from '../../domain/id.js';
import { mayCommand } from '../../clients/may-command.js';
import { formatAmount } from '../../domain/money.js';
import { insertEvents } from '../../store/payments.js';
import { postTransfer, type TransferRequest, type TransferResult } from '../../wallet/ledger.js';
import type { EventConsumer, EventHandler } from '../event-consumer.js';
import { Poison } from '../dead-letters.js';
import { DebitAccount, readAmount, readData } from '../messages.js';
import { WALLET_COMMANDS, WALLET_EVENTS } from '../topics.js';

/** Moves money between accounts: once for each `transfer_id`, however often and however late it is asked for. */
export const wallet: EventConsumer = {
  name: 'wallet',
  topic: WALLET_COMMANDS,
  other_types: 'dead_letter',
  handlers: { 'DebitAccount.v1': debitAccount },
};

async function debitAccount(...[tx, event]: Parameters<EventHandler>): Promise<undefined> {
  const command = readData(DebitAccount, event.data);
  const request: TransferRequest = {
    transfer_id: command.transfer_id,
    client_id: command.client_id,
    debit_account_id: command.account_id,
    credit_account_id: command.credit_account_id,
    amount_minor: readAmount(command.amount, command.currency),
    currency: command.currency,
    saga_id: command.saga_id ?? null,
    step_name: command.step_name ?? null,
  };
  const result = await postTransfer(tx, request, !(await mayCommand(tx, request.client_id)));
  if (result.type === 'contradiction') {
    throw new Poison('contradiction', `transfer_id ${request.transfer_id} was used before for another transfer.`);
  }
  if (result.type !== 'known') await publish(tx, request, result, event.traceparent);
  return undefined;
}

async function publish(
  tx: Parameters<EventHandler>[0],
  request: TransferRequest,
  result: Extract<TransferResult, { type: 'posted' | 'refused' }>,
  traceparent: string | null,
): Promise<void> {
  const { transfer_id, client_id, debit_account_id, credit_account_id, currency, saga_id, step_name } = request;
  const posted = result.type === 'posted';
  const data = {
    transfer_id,
    client_id,
    account_id: debit_account_id,
    credit_account_id,
    amount: formatAmount(request.amount_minor, currency),
    currency,
    ...(saga_id === null ? {} : { saga_id }),
    ...(step_name === null ? {} : { step_name }),
    ...(posted ? { balance: formatAmount(result.debited.balance_minor, currency) } : { reason: result.refusal }),
  };
  await insertEvents(tx, [
    {
      id: newId(),
      topic: WALLET_EVENTS,
      key: debit_account_id,
      // The account's version; a refusal makes none.
      sequence: posted ? result.debited.version : 0,
      type: posted ? 'AccountDebited.v1' : 'AccountDebitRefused.v1',
      data: JSON.stringify(data),
      traceparent,
    },
  ]);
}
