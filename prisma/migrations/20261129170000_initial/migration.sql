-- Amounts are whole minor units (bigint): exact, no NaN, no infinity. The upper bound is what JSON readers
-- hold exactly (2^53 - 1). Text that is looked up or sorted is COLLATE "C", so that every statement sorts alike.
-- Rows that the charge writes carry no foreign key to api_client: a client is never deleted, and the key-share
-- lock on its one row would make every charge of a client meet there.

CREATE TABLE installation (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  id text NOT NULL CHECK (id <> ''),
  created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_client (
  id text COLLATE "C" PRIMARY KEY CHECK (id ~ '^[a-z0-9][a-z0-9._-]{0,63}$'),
  name text NOT NULL,
  scopes text[] NOT NULL,
  disabled_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_key (
  id uuid PRIMARY KEY,
  client_id text COLLATE "C" NOT NULL REFERENCES api_client (id),
  key_hash bytea NOT NULL CHECK (octet_length(key_hash) = 32),
  hint text NOT NULL,                    -- first characters, for people
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT api_key_hash UNIQUE (key_hash)
);
CREATE INDEX api_key_client ON api_key (client_id);

CREATE TABLE client_audit (
  id uuid PRIMARY KEY,
  client_id text COLLATE "C" NOT NULL REFERENCES api_client (id),
  action text NOT NULL,
  actor text NOT NULL,
  detail jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX client_audit_client ON client_audit (client_id, created_at);

CREATE TABLE payment (
  id uuid PRIMARY KEY,
  client_id text COLLATE "C" NOT NULL,
  provider text COLLATE "C" NOT NULL,
  external_payment_id text COLLATE "C" NOT NULL,
  command_hash bytea NOT NULL CHECK (octet_length(command_hash) = 32),
  version integer NOT NULL DEFAULT 1 CHECK (version > 0),
  status text NOT NULL CHECK (status IN ('processing', 'requires_action', 'authorized', 'succeeded', 'failed', 'canceled')),
  amount_minor bigint NOT NULL CHECK (amount_minor BETWEEN 1 AND 9007199254740991),
  currency text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  -- Facts may pass what was asked (an anomaly then); caps hold at admission, under the row's lock.
  amount_captured_minor bigint NOT NULL DEFAULT 0 CHECK (amount_captured_minor BETWEEN 0 AND 9007199254740991),
  amount_refunded_minor bigint NOT NULL DEFAULT 0 CHECK (amount_refunded_minor BETWEEN 0 AND 9007199254740991),
  refund_reserved_minor bigint NOT NULL DEFAULT 0 CHECK (refund_reserved_minor BETWEEN 0 AND 9007199254740991),
  customer_id text NOT NULL,
  provider_payment_id text,
  payment_method text,
  capture text NOT NULL CHECK (capture IN ('automatic', 'manual')),
  order_id text,
  description text,
  metadata json,                         -- json, not jsonb: members keep their order
  return_url text,
  failure_code text,
  failure_message text,
  next_action_type text,
  next_action_url text,
  history jsonb NOT NULL DEFAULT '[]',   -- the moves, for the timeline: {at, from, to, version, cause, operation_id}
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  CONSTRAINT payment_external_id UNIQUE (provider, external_payment_id),
  CONSTRAINT payment_client_external_id UNIQUE (client_id, external_payment_id),
  CHECK ((failure_code IS NULL) = (failure_message IS NULL)),
  CHECK ((next_action_type IS NULL) = (next_action_url IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX payment_list ON payment (client_id, created_at, id);
CREATE INDEX payment_customer ON payment (client_id, customer_id, created_at, id);

CREATE TABLE operation (
  id uuid PRIMARY KEY,
  payment_id uuid NOT NULL REFERENCES payment (id),
  kind text NOT NULL CHECK (kind IN ('charge', 'capture', 'cancel', 'refund')),
  origin text NOT NULL DEFAULT 'client' CHECK (origin IN ('client', 'provider', 'auto_refund')),
  try_number integer NOT NULL DEFAULT 1 CHECK (try_number > 0),
  status text NOT NULL CHECK (status IN ('processing', 'requires_action', 'authorized', 'succeeded', 'failed', 'void')),
  amount_minor bigint NOT NULL CHECK (amount_minor BETWEEN 0 AND 9007199254740991),
  idempotency_key text COLLATE "C",      -- null for what the provider or we ourselves began
  key_hash bytea CHECK (octet_length(key_hash) = 32),
  command_hash bytea CHECK (octet_length(command_hash) = 32),
  provider_key text COLLATE "C" NOT NULL,
  payment_method text,
  reason text,
  -- The charge that a refund gives back, where it is not the payment's own (money taken twice or after a cancel).
  excess_operation_id uuid REFERENCES operation (id),
  provider_payment_id text COLLATE "C",
  provider_refund_id text COLLATE "C",
  failure_code text,
  failure_message text,
  -- Counted before and after every call: the difference tells what was cut off.
  attempts_started integer NOT NULL DEFAULT 0 CHECK (attempts_started >= 0),
  attempts_finished integer NOT NULL DEFAULT 0 CHECK (attempts_finished >= 0),
  first_attempt_at timestamptz,
  last_attempt_at timestamptz,
  attempts jsonb NOT NULL DEFAULT '[]',  -- the finished ones, for the timeline: {action, at, duration_ms, outcome}
  closed_at timestamptz,                 -- a declined charge that is known to be unable to succeed any more
  check_at timestamptz,                  -- when reconciliation asks the provider next; null: nothing to ask
  checks integer NOT NULL DEFAULT 0 CHECK (checks >= 0),
  needs_review_at timestamptz,
  resolved_by text,                      -- the operator who ended it without the provider's word
  saga_id text,
  step_name text,
  traceparent text,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  CONSTRAINT operation_key UNIQUE (payment_id, key_hash),
  CHECK ((failure_code IS NULL) = (failure_message IS NULL)),
  CHECK ((idempotency_key IS NULL) = (key_hash IS NULL) AND (key_hash IS NULL) = (command_hash IS NULL))
) WITH (fillfactor = 70);
-- At most one charge, capture or cancel of a payment is in flight; refunds run side by side.
CREATE UNIQUE INDEX operation_in_flight ON operation (payment_id) WHERE status = 'processing' AND kind <> 'refund';
CREATE UNIQUE INDEX operation_try ON operation (payment_id, try_number) WHERE kind = 'charge';
-- A refund told twice (API answer, webhook, two event ids) is one row.
CREATE UNIQUE INDEX operation_provider_refund ON operation (payment_id, provider_refund_id) WHERE provider_refund_id IS NOT NULL;
CREATE INDEX operation_excess ON operation (excess_operation_id) WHERE excess_operation_id IS NOT NULL;
-- We give an excess back once; somebody at the provider's side may do so in parts.
CREATE UNIQUE INDEX operation_auto_refund ON operation (excess_operation_id) WHERE origin = 'auto_refund';
CREATE INDEX operation_provider_payment ON operation (provider_payment_id) WHERE provider_payment_id IS NOT NULL AND kind = 'charge';
CREATE INDEX operation_check ON operation (check_at) WHERE check_at IS NOT NULL;
CREATE INDEX operation_review ON operation (needs_review_at) WHERE needs_review_at IS NOT NULL;

CREATE TABLE idempotency_record (
  client_id text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 512),
  kind text NOT NULL CHECK (kind IN ('charge', 'capture', 'cancel', 'refund')),
  command_hash bytea NOT NULL CHECK (octet_length(command_hash) = 32),
  state text NOT NULL CHECK (state IN ('in_progress', 'open', 'done')),
  lease_token uuid,
  lease_until timestamptz,
  attempts_started integer NOT NULL DEFAULT 1,
  attempts_finished integer NOT NULL DEFAULT 0,
  payment_id uuid NOT NULL,              -- made with the reservation; the payment may not exist (yet)
  operation_id uuid NOT NULL,            -- its own, or for a second key the one whose end it waits for
  success_status smallint NOT NULL,      -- the HTTP status of success: 201 made something, 200 found it
  http_status smallint,
  body text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  answered_at timestamptz,
  expires_at timestamptz,
  PRIMARY KEY (client_id, key),
  CHECK ((state = 'in_progress') = (lease_token IS NOT NULL) AND (state = 'in_progress') = (lease_until IS NOT NULL)),
  CHECK ((state = 'done') = (http_status IS NOT NULL) AND (state = 'done') = (body IS NOT NULL) AND (state = 'done') = (expires_at IS NOT NULL))
) WITH (fillfactor = 50);
CREATE INDEX idempotency_record_lease ON idempotency_record (lease_until) WHERE state = 'in_progress';
CREATE INDEX idempotency_record_waiting ON idempotency_record (operation_id) WHERE state <> 'done';
CREATE INDEX idempotency_record_expiry ON idempotency_record (expires_at) WHERE state = 'done';

CREATE TABLE outbox_event (
  id uuid PRIMARY KEY,
  topic text NOT NULL,
  key text COLLATE "C" NOT NULL,         -- the payment's id: the order that consumers see is per key
  sequence integer NOT NULL,             -- the payment's version
  type text NOT NULL,
  data json NOT NULL,
  traceparent text,
  attempts integer NOT NULL DEFAULT 0,
  last_error text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  published_at timestamptz,
  quarantined_at timestamptz
) WITH (fillfactor = 85);
CREATE INDEX outbox_event_pending ON outbox_event (id) WHERE published_at IS NULL AND quarantined_at IS NULL;

CREATE TABLE processed_event (
  consumer_name text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer_name, event_id)
);
CREATE INDEX processed_event_age ON processed_event (processed_at);

CREATE TABLE provider_event (
  id uuid PRIMARY KEY,
  provider text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  type text NOT NULL,
  payment_id uuid REFERENCES payment (id),
  operation_id uuid REFERENCES operation (id),
  outcome text NOT NULL CHECK (outcome IN ('applied', 'no_change', 'foreign', 'unknown_operation', 'ignored', 'failing', 'parked')),
  fact jsonb,                            -- what it said, in our words; never the raw body
  failures integer NOT NULL DEFAULT 0,
  last_error text,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT provider_event_once UNIQUE (provider, event_id)
);
CREATE INDEX provider_event_payment ON provider_event (payment_id, received_at);
CREATE INDEX provider_event_operation ON provider_event (operation_id);
CREATE INDEX provider_event_parked ON provider_event (received_at) WHERE outcome = 'parked';

CREATE TABLE anomaly (
  id uuid PRIMARY KEY,
  payment_id uuid REFERENCES payment (id),       -- null: an event of ours for an operation that we do not have
  operation_id uuid REFERENCES operation (id),
  kind text NOT NULL CHECK (kind IN ('paid_twice', 'paid_after_cancel', 'amount_mismatch', 'currency_mismatch',
    'captured_too_much', 'refunded_too_much', 'late_success', 'unknown_operation')),
  detail jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  resolved_at timestamptz,
  resolved_by text,
  resolution text
);
CREATE UNIQUE INDEX anomaly_once ON anomaly (operation_id, kind) WHERE operation_id IS NOT NULL;
CREATE INDEX anomaly_payment ON anomaly (payment_id);
CREATE INDEX anomaly_open ON anomaly (created_at) WHERE resolved_at IS NULL;

-- What a timeline shows and no other row holds: keys that found an existing payment, what operators did.
CREATE TABLE timeline_entry (
  id uuid PRIMARY KEY,
  payment_id uuid NOT NULL REFERENCES payment (id),
  operation_id uuid REFERENCES operation (id),
  type text NOT NULL CHECK (type IN ('request', 'operator')),
  detail jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX timeline_entry_payment ON timeline_entry (payment_id, created_at);
CREATE INDEX timeline_entry_operation ON timeline_entry (operation_id);
