-- Hosts that sandboxes are placed on, each with how it has answered lately.
CREATE TABLE hosts (
    name     TEXT    NOT NULL PRIMARY KEY,
    version  INTEGER NOT NULL,
    -- What somebody registered; the engine's own machine has a row only for the sake of its health.
    doc      TEXT    NOT NULL,
    -- What was learned since. Apart, because both change at different times and by different hands.
    health   TEXT    NOT NULL,
    -- What the host said about itself when it was looked at last.
    facts    TEXT
) STRICT;
