import { randomUUID } from 'node:crypto';
import { afterEach, expect, it } from 'vitest';
import { isRefusal } from '../../src/kafka/client.js';
import { Publisher } from '../../src/kafka/publisher.js';
import { newKafka, newTopic, Reader } from './support.js';

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (let close = closers.pop(); close !== undefined; close = closers.pop()) await close();
});

async function start(): Promise<{ topic: string; publisher: Publisher; reader: Reader }> {
  const topic = await newTopic('publisher', 2);
  const publisher = new Publisher(newKafka());
  const reader = await Reader.start(topic);
  closers.push(
    () => reader.stop(),
    () => publisher.close(),
  );
  return { topic, publisher, reader };
}

it('has in the log whatever it was thanked for, also after a send that failed in part', async () => {
  const { topic, publisher, reader } = await start();
  const sendTo = (...values: (string | null)[]) =>
    publisher.send(
      values.flatMap((value, partition) => (value === null ? [] : [{ topic, key: 'k', value, partition }])),
    );
  await sendTo('a0', 'b0');
  const failed = await sendTo('a1', 'x'.repeat(2 * 1024 * 1024)).catch((error: unknown) => error);
  expect(isRefusal(failed)).toBe(true);
  await sendTo('a2', 'b2');
  await sendTo('a3', null);
  // a1 is there: its partition took it.
  const values = ['a0', 'a1', 'a2', 'a3', 'b0', 'b2'];
  await reader.until((received) => values.every((sent) => received.some(({ value }) => value === sent)));
  expect(reader.received.map(({ value }) => value).sort()).toEqual(values);
});

it('sends one after the other what it is given at once, and loses nothing', async () => {
  const { topic, publisher, reader } = await start();
  const values = Array.from({ length: 50 }, () => randomUUID());
  await Promise.all(values.map((value) => publisher.send([{ topic, key: 'k', value, partition: 0 }])));
  await reader.until((received) => received.length === 50);
  expect(reader.received.map(({ value }) => value)).toEqual(values);
});

it('tells what is refused from what can not be sent now', async () => {
  const { publisher } = await start();
  const error = await publisher
    .send([{ topic: `missing-${randomUUID()}`, value: 'x' }])
    .catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(Error);
  expect(isRefusal(error)).toBe(false);
});
