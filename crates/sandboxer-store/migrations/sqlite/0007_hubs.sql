-- Hubs of the house: the first process that is told of one writes it down, and from then on every process queues for it,
-- whatever that one was told. Where a hub is, is not in the store: a URL may carry a secret.
CREATE TABLE hubs (
    -- The name of the sink that its deliveries are queued under.
    sink      TEXT NOT NULL PRIMARY KEY,
    -- As those of webhooks.
    patterns  TEXT NOT NULL,
    -- When a process that runs for long and has its URL said so last.
    told_at   INTEGER
) STRICT, WITHOUT ROWID;

-- Until when a sink asked to be left alone, by whichever process it was asked.
CREATE TABLE pauses (
    sink      TEXT    NOT NULL PRIMARY KEY,
    until     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The same statement serves webhooks and hubs.
DROP TRIGGER events_webhooks;
CREATE TRIGGER events_outlets AFTER INSERT ON events
WHEN EXISTS (SELECT 1 FROM webhooks) OR EXISTS (SELECT 1 FROM hubs)
BEGIN
    INSERT INTO outbox (sink, subject, position, head, next_at, created_at)
    SELECT outlet.sink, NEW.subject, NEW.position,
           NOT EXISTS (SELECT 1 FROM outbox o WHERE o.subject = NEW.subject AND o.sink = outlet.sink),
           NEW.time, NEW.time
    FROM (SELECT id AS sink, patterns FROM webhooks WHERE disabled_reason IS NULL
          UNION ALL SELECT sink, patterns FROM hubs) outlet
    WHERE EXISTS (SELECT 1 FROM json_each(outlet.patterns) p
                  WHERE json_extract(NEW.json, '$.type') GLOB 'dev.sandboxer.' || p.value);
END;
