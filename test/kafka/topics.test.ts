import type { Admin } from 'kafkajs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { CONSUMED_TOPICS, deadLetterTopic, PUBLISHED_TOPICS } from '../../src/kafka/topics.js';
import { makeTopics, retentionWarnings } from '../../src/kafka/topic-setup.js';
import { newKafka } from './support.js';

let admin: Admin;
beforeEach(async () => {
  admin = newKafka().admin();
  await admin.connect();
});
afterEach(() => admin.disconnect());

it('makes the topics that are missing, and none a second time', async () => {
  await Promise.all([makeTopics(admin), makeTopics(admin)]);
  await makeTopics(admin);
  const topics = await admin.listTopics();
  expect(topics).toEqual(
    expect.arrayContaining([...PUBLISHED_TOPICS, ...CONSUMED_TOPICS.flatMap((t) => [t, deadLetterTopic(t)])]),
  );
});

it('warns where a topic keeps messages for longer than processed events are remembered, and says what to set', async () => {
  await makeTopics(admin);
  // Kafka's default is 7 days, and so is ours.
  expect(await retentionWarnings(admin, 168)).toEqual([]);
  const warnings = await retentionWarnings(admin, 100);
  expect(warnings).toHaveLength(CONSUMED_TOPICS.length);
  expect(warnings[0]).toContain('keeps messages for 168 h (retention.ms=604800000)');
  expect(warnings[0]).toContain(
    "Set PROCESSED_EVENT_RETENTION_HOURS to 168 or more, or set the topic's retention.ms to 360000000 or less",
  );
});
