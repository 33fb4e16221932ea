-- The holds of an account that ended in a month: those of which nothing was ever charged are in no entry.
CREATE INDEX holds_ended ON holds (account, settled_at, sandbox_id) WHERE settled_at IS NOT NULL;
