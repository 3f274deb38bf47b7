import type { Admin, Kafka } from 'kafkajs';
import kafkajs from 'kafkajs'; // CommonJS: Node finds only some of its exports by name
import type { Logger } from '../logger.js';
import { CONSUMED_TOPICS, deadLetterTopic, PUBLISHED_TOPICS } from './topics.js';

const HOUR_MS = 60 * 60_000;

/**
 * Makes the topics that are missing, with the broker's own defaults for partitions and replicas. Where that is not
 * allowed, or the topics are made by others, nothing is lost: it is said, and tried again with the next connection.
 */
export async function makeTopics(admin: Admin): Promise<void> {
  const wanted = [...PUBLISHED_TOPICS, ...CONSUMED_TOPICS, ...CONSUMED_TOPICS.map(deadLetterTopic)];
  const known = new Set(await admin.listTopics());
  const missing = wanted.filter((topic) => !known.has(topic));
  if (missing.length === 0) return;
  // Resolves with false where another instance was faster.
  await admin.createTopics({ topics: missing.map((topic) => ({ topic })), waitForLeaders: true });
}

/**
 * What a topic keeps longer than we remember processed events: somebody who reads it again from the start then has
 * effects twice. Each as a text that says what to set.
 */
export async function retentionWarnings(admin: Admin, processed_event_retention_h: number): Promise<string[]> {
  const known = new Set(await admin.listTopics());
  const topics = CONSUMED_TOPICS.filter((topic) => known.has(topic));
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: topics.map((name) => ({ type: kafkajs.ConfigResourceTypes.TOPIC, name, configNames: ['retention.ms'] })),
  });
  return resources.flatMap(({ resourceName, configEntries }) => {
    const retention_ms = Number(configEntries.find(({ configName }) => configName === 'retention.ms')?.configValue);
    if (!isLonger(retention_ms, processed_event_retention_h)) return [];
    const hours = retention_ms < 0 ? null : Math.ceil(retention_ms / HOUR_MS);
    return [
      `The topic ${resourceName} keeps messages ${hours === null ? 'for ever' : `for ${hours} h`} (retention.ms=${retention_ms}), but processed ` +
        `events are remembered for ${processed_event_retention_h} h only: a message that is read again after that has its effect ` +
        `twice. ${hours === null ? '' : `Set PROCESSED_EVENT_RETENTION_HOURS to ${hours} or more, or `}` +
        `${hours === null ? 'Set' : 'set'} the topic's retention.ms to ${processed_event_retention_h * HOUR_MS} or less`,
    ];
  });
}

/** -1 is for ever. */
function isLonger(retention_ms: number, processed_event_retention_h: number): boolean {
  if (Number.isNaN(retention_ms)) return false;
  return retention_ms < 0 || retention_ms > processed_event_retention_h * HOUR_MS;
}

/** Topics and warnings at start, by an admin connection that is closed again. */
export async function setUpTopics(kafka: Kafka, logger: Logger, processed_event_retention_h: number): Promise<void> {
  const admin = kafka.admin();
  try {
    await admin.connect();
    await makeTopics(admin).catch((error: unknown) => {
      logger.warn({ err: error }, 'kafka: topics are missing and could not be made');
    });
    for (const warning of await retentionWarnings(admin, processed_event_retention_h)) logger.warn(warning);
  } finally {
    await admin.disconnect().catch(() => undefined);
  }
}
