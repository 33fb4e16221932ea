-- Checkpoints of sandboxes. A row is there before its backend is asked and goes after it was asked to forget, so that
-- whatever a crash leaves behind is found by its id.
CREATE TABLE snapshots (
    id           TEXT    NOT NULL PRIMARY KEY,
    -- Its events carry the sandbox as their subject, so the sandbox is remembered for as long (no cascade).
    sandbox_id   TEXT    NOT NULL REFERENCES sandboxes (id),
    version      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    owner_key    TEXT,
    -- It goes as soon as nobody works with it: somebody asked for that, or it was only made for a fork.
    doomed       INTEGER NOT NULL,
    lease_owner  TEXT,
    lease_until  INTEGER,
    doc          TEXT    NOT NULL,
    spec         TEXT    NOT NULL,
    -- What the extension answered; absent until it has.
    taken        TEXT
) STRICT;

-- Listings, newest first: everything, one sandbox's, one key's.
CREATE INDEX snapshots_taken ON snapshots (id) WHERE taken IS NOT NULL;
CREATE INDEX snapshots_sandbox ON snapshots (sandbox_id, id);
CREATE INDEX snapshots_owner ON snapshots (owner_key, id) WHERE owner_key IS NOT NULL AND taken IS NOT NULL;

-- What a crash may have left: asked for at every start and every few moments, and nearly always empty.
CREATE INDEX snapshots_unsettled ON snapshots (id) WHERE taken IS NULL OR doomed = 1;
