-- What routing remembers: how long creates took, who failed how, and who may still be asked.

-- One row for a profile and a backend. The percentiles are those of the samples; whoever decides reads no sample.
CREATE TABLE route_latency (
    profile      TEXT    NOT NULL,
    extension    TEXT    NOT NULL,
    host         TEXT    NOT NULL,
    p50_ms       INTEGER NOT NULL,
    p95_ms       INTEGER NOT NULL,
    samples      INTEGER NOT NULL,
    weight       REAL    NOT NULL,
    updated_at   INTEGER NOT NULL,
    window       TEXT    NOT NULL,
    PRIMARY KEY (profile, extension, host)
) STRICT, WITHOUT ROWID;

-- One row for a backend and a class of failures, gone with the next success.
CREATE TABLE route_breakers (
    extension    TEXT    NOT NULL,
    host         TEXT    NOT NULL,
    class        TEXT    NOT NULL,
    failures     INTEGER NOT NULL,
    last_at      INTEGER NOT NULL,
    open_until   INTEGER,
    -- Somebody tries it again; nobody else does before this moment.
    probe_until  INTEGER,
    reason       TEXT    NOT NULL,
    PRIMARY KEY (extension, host, class)
) STRICT, WITHOUT ROWID;

-- Creates that were let through to an extension with limits of ours.
CREATE TABLE route_slots (
    extension    TEXT    NOT NULL,
    sandbox_id   TEXT    NOT NULL,
    taken_at     INTEGER NOT NULL,
    PRIMARY KEY (extension, sandbox_id)
) STRICT, WITHOUT ROWID;
