-- Webhook endpoints and dead letters.

-- Few and small. The id is also the name of the sink that its deliveries are queued under.
CREATE TABLE webhooks (
    id               TEXT    NOT NULL PRIMARY KEY,
    version          INTEGER NOT NULL,
    -- Why it gets nothing; absent while it does.
    disabled_reason  TEXT,
    -- A JSON array of patterns such as `sandbox.*`: letters, digits, `_`, `.` and a `*` at the end, so that they mean to
    -- GLOB what they mean to us.
    patterns         TEXT    NOT NULL,
    -- The rest: URL, times, names of its secrets. The secrets themselves are not in the store.
    doc              TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- Every event is queued for the endpoints that want it, in the statement that writes it, whichever process does so and
-- whatever that process knows of webhooks. Without endpoints this is one look into an empty table.
CREATE TRIGGER events_webhooks AFTER INSERT ON events WHEN EXISTS (SELECT 1 FROM webhooks)
BEGIN
    INSERT INTO outbox (sink, subject, position, head, next_at, created_at)
    SELECT w.id, NEW.subject, NEW.position,
           NOT EXISTS (SELECT 1 FROM outbox o WHERE o.subject = NEW.subject AND o.sink = w.id),
           NEW.time, NEW.time
    FROM webhooks w
    WHERE w.disabled_reason IS NULL
      AND EXISTS (SELECT 1 FROM json_each(w.patterns) p
                  WHERE json_extract(NEW.json, '$.type') GLOB 'dev.sandboxer.' || p.value);
END;

-- What nobody took in all its tries, or what was queued for an endpoint that went away. A delivery keeps its id. Like
-- the outbox, it holds its sandbox and events (no cascade): it can be sent again for as long as it is here.
CREATE TABLE dead_letters (
    id          INTEGER NOT NULL PRIMARY KEY,
    sink        TEXT    NOT NULL,
    subject     TEXT    NOT NULL REFERENCES sandboxes (id),
    position    INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    queued_at   INTEGER NOT NULL,
    died_at     INTEGER NOT NULL,
    reason      TEXT    NOT NULL
) STRICT;

-- A listing of one sink, newest first, and how many it has; whether a sandbox or an event has any.
CREATE INDEX dead_letters_sink ON dead_letters (sink, id);
CREATE INDEX dead_letters_subject ON dead_letters (subject);
CREATE INDEX dead_letters_position ON dead_letters (position, sink);

-- Who is delivering now, to find claims of processes that were killed.
CREATE INDEX outbox_claims ON outbox (claimed_by) WHERE claimed_by IS NOT NULL;

-- Whether an event is queued already when it is to be sent again.
CREATE INDEX outbox_position ON outbox (position, sink);
