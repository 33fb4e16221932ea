-- The holds of an account that ended in a month: those of which nothing was ever charged are in no entry.
CREATE INDEX holds_ended ON holds (account, settled_at, sandbox_id) WHERE settled_at IS NOT NULL;

-- What a statement tells of a sandbox that has ended, as JSON: its row is forgotten before the books are.
ALTER TABLE holds ADD COLUMN told TEXT;
