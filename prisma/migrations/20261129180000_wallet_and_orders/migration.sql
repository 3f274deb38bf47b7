-- What events need beside the outbox itself, orders as other services tell of them, and the wallet.

-- The relay reads per shard, and within it per key in the order of the sequence: a slice that ends anywhere then holds
-- the first unsent events of each of its keys and never a later one alone. The hash keeps the events of a payment in
-- one shard, which one relay at a time has on lease. 16 shards: see src/store/outbox.ts, which repeats the expression.
DROP INDEX outbox_event_pending;
CREATE INDEX outbox_event_pending ON outbox_event (((hashtextextended(key, 0) & 15)::integer), key, sequence)
  WHERE published_at IS NULL AND quarantined_at IS NULL;
-- Rows of this table die young; the default of a fifth of the table would leave the relay reading past the dead.
ALTER TABLE outbox_event SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE outbox_shard (
  shard integer PRIMARY KEY CHECK (shard BETWEEN 0 AND 15),
  lease_token uuid,
  lease_until timestamptz,
  served_at timestamptz NOT NULL DEFAULT '-infinity',
  CHECK ((lease_token IS NULL) = (lease_until IS NULL))
) WITH (fillfactor = 25);
INSERT INTO outbox_shard (shard) SELECT generate_series(0, 15);

-- Whether any relay sleeps and wants to be woken. NOTIFY takes one lock for the whole database until its transaction
-- has been flushed: sent at every insert it cost three quarters of the throughput of 16 connections (docs/adr/0041).
-- A relay that has work does not sleep, so that under load nobody pays.
CREATE TABLE outbox_wake (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  wanted boolean NOT NULL
) WITH (fillfactor = 25);
INSERT INTO outbox_wake (wanted) VALUES (false);

CREATE FUNCTION outbox_event_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM outbox_wake WHERE wanted) THEN
    PERFORM pg_notify('oncepay_outbox', '');
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER outbox_event_notify AFTER INSERT ON outbox_event
  FOR EACH STATEMENT EXECUTE FUNCTION outbox_event_notify();

CREATE TABLE order_projection (
  client_id text COLLATE "C" NOT NULL,
  order_id text COLLATE "C" NOT NULL CHECK (octet_length(order_id) BETWEEN 1 AND 512),
  customer_id text NOT NULL,
  amount_minor bigint NOT NULL CHECK (amount_minor BETWEEN 1 AND 9007199254740991),
  currency text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  ordered_at timestamptz NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- By order first: an admin looks for one without knowing whose it is.
  PRIMARY KEY (order_id, client_id)
);
CREATE INDEX payment_order ON payment (client_id, order_id) WHERE order_id IS NOT NULL;

-- The wallet: double entry. An account's balance is the sum of its entries, kept beside them under the account's lock.
CREATE TABLE account (
  id uuid PRIMARY KEY,
  client_id text COLLATE "C" NOT NULL REFERENCES api_client (id),
  -- external: the world outside, which money comes from and goes to; the only kind that may be below zero.
  kind text NOT NULL CHECK (kind IN ('internal', 'external')),
  name text NOT NULL DEFAULT '',
  currency text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  balance_minor bigint NOT NULL DEFAULT 0 CHECK (balance_minor BETWEEN -9007199254740991 AND 9007199254740991),
  version integer NOT NULL DEFAULT 0 CHECK (version >= 0),   -- the number of its entries
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT account_not_below_zero CHECK (kind = 'external' OR balance_minor >= 0)
) WITH (fillfactor = 70);

-- One row for ever for each id that was ever asked for, also where it was refused: a refused transfer that comes again
-- after the account was filled stays refused, because whoever asked has acted on the refusal. No foreign keys: it may
-- name accounts that do not exist.
CREATE TABLE transfer (
  transfer_id uuid CONSTRAINT transfer_once PRIMARY KEY,
  client_id text COLLATE "C" NOT NULL,
  debit_account_id uuid NOT NULL,
  credit_account_id uuid NOT NULL,
  amount_minor bigint NOT NULL CHECK (amount_minor BETWEEN 1 AND 9007199254740991),
  currency text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  status text NOT NULL CHECK (status IN ('posted', 'refused')),
  refusal text,
  saga_id text,
  step_name text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CHECK ((status = 'refused') = (refusal IS NOT NULL))
);

CREATE TABLE ledger_entry (
  account_id uuid NOT NULL REFERENCES account (id),
  sequence integer NOT NULL CHECK (sequence > 0),            -- the account's version that it made
  transfer_id uuid NOT NULL REFERENCES transfer (transfer_id),
  amount_minor bigint NOT NULL CHECK (amount_minor <> 0),    -- negative: taken from the account
  balance_minor bigint NOT NULL,                             -- afterwards
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (account_id, sequence),
  CONSTRAINT ledger_entry_once UNIQUE (transfer_id, account_id)
);

-- The two rules of the books, held by the database whoever writes: what was written stays, and each transfer's entries
-- sum to zero (looked at when the transaction ends).
CREATE FUNCTION ledger_entry_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'ledger entries are never changed: post a transfer the other way' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER ledger_entry_stays BEFORE UPDATE OR DELETE ON ledger_entry
  FOR EACH ROW EXECUTE FUNCTION ledger_entry_stays();

CREATE FUNCTION ledger_transfer_balances() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT sum(amount_minor) FROM ledger_entry WHERE transfer_id = NEW.transfer_id) <> 0 THEN
    RAISE EXCEPTION 'the entries of transfer % do not sum to zero', NEW.transfer_id USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER ledger_transfer_balances AFTER INSERT ON ledger_entry
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_transfer_balances();
