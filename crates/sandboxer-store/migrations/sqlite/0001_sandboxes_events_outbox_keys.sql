-- The first schema. Times are microseconds since 1970 in UTC, so that they compare as numbers.

-- With a rowid on purpose: the documents make rows of several kilobytes, and a table WITHOUT ROWID would put them
-- into the tree that a lookup by id walks. The small columns come first and the documents last, with the public one
-- in front: a listing reads a row only as far as the end of that one.
CREATE TABLE sandboxes (
    id             TEXT    NOT NULL PRIMARY KEY,
    state          TEXT    NOT NULL CHECK (state IN ('requested', 'provisioning', 'ready', 'active', 'paused',
                                                     'expired', 'failed', 'destroying', 'destroyed')),
    version        INTEGER NOT NULL,
    -- The sequence of its newest event; the next one is one more, which leaves no gaps.
    last_sequence  INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    -- When it became destroyed; the age that pruning looks at.
    destroyed_at   INTEGER,
    reuse_key      TEXT,
    config_hash    TEXT    NOT NULL,
    owner_key      TEXT,
    lease_owner    TEXT,
    lease_until    INTEGER,
    -- As in the document; kept apart to see without parsing whether an update changes them.
    labels         TEXT    NOT NULL,
    doc            TEXT    NOT NULL,
    handle         TEXT,
    spec           TEXT    NOT NULL
) STRICT;

-- `living` at every start and the default listing: both must not step over the destroyed, which are most.
CREATE INDEX sandboxes_living ON sandboxes (id) WHERE state <> 'destroyed';

-- A listing of one state, in order of age.
CREATE INDEX sandboxes_state ON sandboxes (state, id);

-- At most one sandbox that may still be handed out per reuse key and configuration, whoever asks at the same moment;
-- also the lookup for reuse in a create.
CREATE UNIQUE INDEX sandboxes_reuse ON sandboxes (reuse_key, config_hash)
    WHERE reuse_key IS NOT NULL AND state IN ('requested', 'provisioning', 'ready', 'active', 'paused');

-- `sharing`: all living ones of a reuse key, whatever their configuration, to report drift.
CREATE INDEX sandboxes_sharing ON sandboxes (reuse_key, id) WHERE reuse_key IS NOT NULL AND state <> 'destroyed';

-- `overdue` runs every few moments and must cost nothing when nothing is due.
CREATE INDEX sandboxes_overdue ON sandboxes (expires_at) WHERE state IN ('ready', 'active', 'paused');

-- A key that sees only its own: its living ones, all of them, and those of one state.
CREATE INDEX sandboxes_owner_living ON sandboxes (owner_key, id)
    WHERE owner_key IS NOT NULL AND state <> 'destroyed';
CREATE INDEX sandboxes_owner ON sandboxes (owner_key, id) WHERE owner_key IS NOT NULL;
CREATE INDEX sandboxes_owner_state ON sandboxes (owner_key, state, id) WHERE owner_key IS NOT NULL;

-- Pruning takes the longest destroyed first, in small bites.
CREATE INDEX sandboxes_destroyed ON sandboxes (destroyed_at, id) WHERE state = 'destroyed';

-- Labels as rows, because an index cannot look into a document. Small rows whose key is nearly all of them: WITHOUT
-- ROWID. The key answers whether one sandbox has a label, and which labels go with a sandbox that is pruned.
CREATE TABLE sandbox_labels (
    id      TEXT    NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    name    TEXT    NOT NULL,
    value   TEXT    NOT NULL,
    -- Follows the sandbox: 0 once it is destroyed.
    living  INTEGER NOT NULL,
    PRIMARY KEY (id, name)
) STRICT, WITHOUT ROWID;

-- A listing by label, in order of age: over everything, and over the living only.
CREATE INDEX sandbox_labels_all ON sandbox_labels (name, value, id);
CREATE INDEX sandbox_labels_living ON sandbox_labels (name, value, id) WHERE living = 1;

-- AUTOINCREMENT: a position is never given twice, even after the newest events were pruned, so that a reader may
-- go on from the last one it saw.
CREATE TABLE events (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT    NOT NULL,
    subject    TEXT    NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    sequence   INTEGER NOT NULL,
    time       INTEGER NOT NULL,
    owner_key  TEXT,
    json       TEXT    NOT NULL
) STRICT;

-- A reader that resumes names the event that it saw last.
CREATE UNIQUE INDEX events_id ON events (id);

-- The events of one sandbox. Positions grow with sequences, so this order is also that of positions.
CREATE UNIQUE INDEX events_subject ON events (subject, sequence);

-- The events of all sandboxes of a key; the rowid at the end of each entry is the position.
CREATE INDEX events_owner ON events (owner_key) WHERE owner_key IS NOT NULL;

-- What is still to be delivered: a row per event and sink, gone when delivered. A sandbox with rows here cannot be
-- deleted (the reference has no cascade), so nothing undelivered is ever lost to pruning.
-- AUTOINCREMENT: a late word about an old delivery never hits a new one.
CREATE TABLE outbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    sink        TEXT    NOT NULL,
    subject     TEXT    NOT NULL REFERENCES sandboxes (id),
    position    INTEGER NOT NULL,
    -- 1 for the oldest of its sandbox and sink: the only one that may be delivered now.
    head        INTEGER NOT NULL,
    -- Not before this moment. A claim moves it to the end of the claim, so that a claimer that died delays a
    -- delivery and never loses it.
    next_at     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    claimed_by  TEXT,
    last_error  TEXT
) STRICT;

-- The next one of a sandbox once its oldest is delivered; whether a sandbox has anything undelivered.
CREATE INDEX outbox_queue ON outbox (subject, sink, id);

-- A claim reads what is due and may be delivered, oldest first, and nothing else, however long the backlog is.
CREATE INDEX outbox_due ON outbox (sink, next_at, id) WHERE head = 1;

-- How much is pending for a sink and since when.
CREATE INDEX outbox_sink ON outbox (sink, id);

CREATE TABLE idempotency (
    scope       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    body_hash   TEXT    NOT NULL,
    -- What a create made or found. Such a key is remembered for as long as its sandbox.
    sandbox_id  TEXT    REFERENCES sandboxes (id) ON DELETE CASCADE,
    -- The answer to any other request; absent while it is under way.
    status      INTEGER,
    body        TEXT,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT;

-- Without it every deleted sandbox would search the whole table for its keys.
CREATE INDEX idempotency_sandbox ON idempotency (sandbox_id) WHERE sandbox_id IS NOT NULL;

-- Pruning of the keys that belong to no sandbox.
CREATE INDEX idempotency_age ON idempotency (created_at) WHERE sandbox_id IS NULL;

-- Small and few: no index beyond the two ways in.
CREATE TABLE api_keys (
    key_id      TEXT    NOT NULL PRIMARY KEY,
    hash        TEXT    NOT NULL UNIQUE,
    name        TEXT    NOT NULL,
    actor       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER
) STRICT;
