-- The lists of a status that few payments are in walked every payment of a client, newest first, to fill a page. An index
-- over `status` would cost every charge two entries and its HOT update (ADR 61), so this one is over a column that the
-- hot path leaves null: a payment that is processing is found by its operation (operation_in_flight), and nearly all
-- others have succeeded. Only what ends or rests elsewhere pays.
ALTER TABLE payment ADD COLUMN listed_status text
  GENERATED ALWAYS AS (CASE WHEN status NOT IN ('processing', 'succeeded') THEN status END) STORED;
CREATE INDEX payment_listed_status ON payment (client_id, listed_status, created_at, id) WHERE listed_status IS NOT NULL;

-- The list of a provider that is no longer in use walked all payments made since. With the provider in the index of the
-- list it begins at that provider's newest; the list of all providers merges theirs, which are few. Instead of the former
-- index, not beside it: another one would cost every charge a write.
DROP INDEX payment_list;
CREATE INDEX payment_list ON payment (client_id, provider, created_at, id);
