-- The credits ledger. Amounts are nano-dollars.

-- What is held for a sandbox and what its intervals cost; absent where nothing is charged or metered.
ALTER TABLE sandboxes ADD COLUMN bill TEXT;

-- Who pays for what a key makes.
ALTER TABLE api_keys ADD COLUMN organisation TEXT NOT NULL DEFAULT 'default';
ALTER TABLE api_keys ADD COLUMN workspace TEXT NOT NULL DEFAULT 'default';

-- Where every account stands: the sum of its entries, kept by the trigger below so that nobody adds them up to know.
-- The bounds are far from those of 64 bits, where SQLite would go on with floating point.
CREATE TABLE accounts (
    name       TEXT    NOT NULL PRIMARY KEY,
    balance    INTEGER NOT NULL DEFAULT 0 CHECK (balance BETWEEN -9000000000000000000 AND 9000000000000000000),
    overdraft  INTEGER NOT NULL DEFAULT 0 CHECK (overdraft BETWEEN 0 AND 1000000000000000000)
) STRICT, WITHOUT ROWID;

-- One per movement of money. The id tells a repeat: a transfer's is given by whoever asks for it, a sandbox's is made
-- of its own and the number of the hold. No reference to the sandbox: the books outlive it.
CREATE TABLE ledger_transactions (
    id          TEXT    NOT NULL PRIMARY KEY,
    kind        TEXT    NOT NULL CHECK (kind IN ('credit', 'adjustment', 'hold', 'settlement')),
    sandbox_id  TEXT,
    memo        TEXT    NOT NULL,
    time        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The entries of one sandbox.
CREATE INDEX ledger_transactions_sandbox ON ledger_transactions (sandbox_id) WHERE sandbox_id IS NOT NULL;

-- AUTOINCREMENT: a position is never given twice, so that a reader may go on from the last one it saw.
CREATE TABLE ledger_entries (
    position        INTEGER PRIMARY KEY AUTOINCREMENT,
    transaction_id  TEXT    NOT NULL REFERENCES ledger_transactions (id),
    account         TEXT    NOT NULL,
    amount          INTEGER NOT NULL CHECK (amount <> 0),
    -- What the account had afterwards.
    balance         INTEGER NOT NULL,
    -- That of the transaction, here for the index below.
    time            INTEGER NOT NULL
) STRICT;

-- The entries of one transaction. An account is in it once.
CREATE UNIQUE INDEX ledger_entries_transaction ON ledger_entries (transaction_id, account);

-- The entries of one account, oldest first; a statement over a time passes by the others without reading their rows.
CREATE INDEX ledger_entries_account ON ledger_entries (account, position, time);

-- The balance follows the entry. That no account but the world's goes below its limit was asked before; here it is
-- made sure, whoever writes.
CREATE TRIGGER ledger_entries_post AFTER INSERT ON ledger_entries BEGIN
    INSERT INTO accounts (name, balance) VALUES (NEW.account, NEW.amount)
        ON CONFLICT (name) DO UPDATE SET balance = balance + NEW.amount;
    SELECT RAISE(ABORT, 'the entry does not follow from the balance of its account')
        FROM accounts WHERE name = NEW.account AND balance <> NEW.balance;
    SELECT RAISE(ABORT, 'the account would go below its limit')
        FROM accounts WHERE name = NEW.account AND NEW.amount < 0 AND balance < -overdraft AND name <> 'world';
END;

-- What is written stays. A REPLACE deletes without asking the triggers for a deletion, hence those for an insertion.
CREATE TRIGGER ledger_transactions_stay BEFORE UPDATE ON ledger_transactions BEGIN
    SELECT RAISE(ABORT, 'a transaction of the ledger is never changed');
END;
CREATE TRIGGER ledger_transactions_keep BEFORE DELETE ON ledger_transactions BEGIN
    SELECT RAISE(ABORT, 'a transaction of the ledger is never removed');
END;
CREATE TRIGGER ledger_transactions_once BEFORE INSERT ON ledger_transactions
    WHEN EXISTS (SELECT 1 FROM ledger_transactions WHERE id = NEW.id) BEGIN
    SELECT RAISE(ABORT, 'a transaction of the ledger is never replaced');
END;
CREATE TRIGGER ledger_entries_stay BEFORE UPDATE ON ledger_entries BEGIN
    SELECT RAISE(ABORT, 'an entry of the ledger is never changed');
END;
CREATE TRIGGER ledger_entries_keep BEFORE DELETE ON ledger_entries BEGIN
    SELECT RAISE(ABORT, 'an entry of the ledger is never removed');
END;
CREATE TRIGGER ledger_entries_once BEFORE INSERT ON ledger_entries
    WHEN EXISTS (SELECT 1 FROM ledger_entries WHERE position = NEW.position)
      OR EXISTS (SELECT 1 FROM ledger_entries WHERE transaction_id = NEW.transaction_id AND account = NEW.account)
BEGIN
    SELECT RAISE(ABORT, 'an entry of the ledger is never replaced');
END;

-- What is held for each sandbox. No reference to it: the books outlive it.
CREATE TABLE holds (
    sandbox_id  TEXT    NOT NULL PRIMARY KEY,
    -- Who pays, from the first hold to the end.
    account     TEXT    NOT NULL,
    amount      INTEGER NOT NULL CHECK (amount >= 0),
    -- How many transactions it had; the number of the next one is one more.
    turns       INTEGER NOT NULL,
    -- Whose budgets it counts in, and for which days how much: [[day, amount], …] in order.
    subjects    TEXT    NOT NULL,
    parts       TEXT    NOT NULL,
    settled_at  INTEGER,
    CHECK (settled_at IS NULL OR amount = 0)
) STRICT, WITHOUT ROWID;

-- What an account's living sandboxes hold, for the audit.
CREATE INDEX holds_open ON holds (account, amount) WHERE settled_at IS NULL;

-- What each subject has spent or set aside on each day, counted in days since 1970 in UTC. Written with every hold,
-- whether there is a budget or not: one that is set later counts what was spent before.
CREATE TABLE spend (
    subject  TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    used     INTEGER NOT NULL,
    PRIMARY KEY (subject, day)
) STRICT, WITHOUT ROWID;

CREATE TABLE budgets (
    subject  TEXT    NOT NULL,
    period   TEXT    NOT NULL CHECK (period IN ('day', 'month')),
    most     INTEGER NOT NULL CHECK (most >= 0),
    PRIMARY KEY (subject, period)
) STRICT, WITHOUT ROWID;

-- Intervals. A running one is written when it begins and once more when it ends, and then never again. No reference
-- to the sandbox: a statement is asked for long after it is forgotten.
CREATE TABLE meters (
    position    INTEGER PRIMARY KEY,
    sandbox_id  TEXT    NOT NULL,
    meter       TEXT    NOT NULL,
    sequence    INTEGER NOT NULL,
    extension   TEXT    NOT NULL,
    -- The sandbox's at that time.
    owner_key   TEXT,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    -- When the backend was last seen alive in it, and what it had used by then.
    alive_at    INTEGER NOT NULL,
    usage       TEXT,
    doc         TEXT    NOT NULL
) STRICT;

-- No time is charged twice; also the listing of one sandbox.
CREATE UNIQUE INDEX meters_once ON meters (sandbox_id, meter, sequence);

-- No meter of a sandbox runs twice at a time; also what a sign of life looks up.
CREATE UNIQUE INDEX meters_running ON meters (sandbox_id, meter) WHERE ended_at IS NULL;

-- Listings, newest first: everything, one extension's, one key's. The position at the end of each entry decides
-- between those of the same moment.
CREATE INDEX meters_started ON meters (started_at);
CREATE INDEX meters_extension ON meters (extension, started_at);
CREATE INDEX meters_owner ON meters (owner_key, started_at) WHERE owner_key IS NOT NULL;

CREATE TRIGGER meters_stay BEFORE UPDATE ON meters WHEN OLD.ended_at IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'an ended interval is never changed');
END;
CREATE TRIGGER meters_keep BEFORE DELETE ON meters BEGIN
    SELECT RAISE(ABORT, 'an interval is never removed');
END;

-- Workspaces' own keys at providers: where the secret is, never the secret.
CREATE TABLE own_keys (
    organisation      TEXT    NOT NULL,
    workspace         TEXT    NOT NULL,
    extension         TEXT    NOT NULL,
    secret            TEXT    NOT NULL,
    fee_basis_points  INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    PRIMARY KEY (organisation, workspace, extension)
) STRICT, WITHOUT ROWID;
