-- What could never be sent is counted at every scrape of the metrics; without an index that reads the whole outbox.
CREATE INDEX outbox_event_quarantined ON outbox_event (quarantined_at) WHERE quarantined_at IS NOT NULL;
