-- Updates that touch no index (HOT), and fewer index entries per charge: docs/performance.md has what each of these gave.
--
-- PostgreSQL writes a new entry into every index of a table when an update changes a column that any of them names, in
-- its predicate too. The indexes below named `state`, `lease_until` and `expires_at`, which every charge changes.

-- When the background job looks at a lease. Null where the operation itself is watched, by its check_at: a charge of a new
-- payment, which is nearly every record. Its reservation and its answer then leave the indexes alone.
ALTER TABLE idempotency_record ADD COLUMN recover_at timestamptz;
UPDATE idempotency_record SET recover_at = lease_until WHERE state = 'in_progress';
ALTER TABLE idempotency_record ADD CHECK (recover_at IS NULL OR state = 'in_progress');
DROP INDEX idempotency_record_lease, idempotency_record_waiting, idempotency_record_expiry;
CREATE INDEX idempotency_record_recover ON idempotency_record (recover_at) WHERE recover_at IS NOT NULL;
-- Who waits for an operation; and, since these ids sort by age (UUID v7), the way of the retention's sweep.
CREATE INDEX idempotency_record_operation ON idempotency_record (operation_id);

-- Room on the page for the answered record, which is four times the reservation, and for the settled payment.
ALTER TABLE idempotency_record SET (fillfactor = 20);
ALTER TABLE payment SET (fillfactor = 45);
-- An operation changes its status, which operation_in_flight must name: its updates are never HOT, and room would be waste.
ALTER TABLE operation SET (fillfactor = 90);

-- An operation is inserted only by statements that insert its payment or have locked it. The foreign key looked that up
-- once more for every row, a sixth of the time of begin. What it also kept off, a payment deleted from under its
-- operations, is refused outright: payments and operations stay for ever (the second guard rests on them).
ALTER TABLE operation DROP CONSTRAINT operation_payment_id_fkey, DROP CONSTRAINT operation_excess_operation_id_fkey;
CREATE FUNCTION payment_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a % is never deleted', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER payment_stays BEFORE DELETE ON payment FOR EACH ROW EXECUTE FUNCTION payment_stays();
CREATE TRIGGER operation_stays BEFORE DELETE ON operation FOR EACH ROW EXECUTE FUNCTION payment_stays();

-- Tables of millions of rows, of which every charge leaves a dead version: the default, a fifth of the table, would let
-- millions of them pile up between two vacuums, and the walk of operation_check would pass them all.
ALTER TABLE idempotency_record SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);
ALTER TABLE operation SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);
ALTER TABLE payment SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000);
ALTER TABLE processed_event SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);
