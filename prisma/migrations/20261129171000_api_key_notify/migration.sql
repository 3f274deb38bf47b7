-- Instances keep API keys in memory for a moment (src/clients/directory.ts). A change tells them at commit to let go
-- at once. Only what authentication reads counts: writing last_used_at must not empty every cache.
CREATE FUNCTION notify_keys_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('oncepay_keys_changed', '');
  RETURN NULL;
END
$$;

CREATE TRIGGER api_key_changed AFTER INSERT OR DELETE OR UPDATE OF client_id, key_hash, expires_at, revoked_at
  ON api_key FOR EACH STATEMENT EXECUTE FUNCTION notify_keys_changed();

CREATE TRIGGER api_client_changed AFTER INSERT OR DELETE OR UPDATE OF id, scopes, disabled_at
  ON api_client FOR EACH STATEMENT EXECUTE FUNCTION notify_keys_changed();
