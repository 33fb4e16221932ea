//! The books in a file that somebody else has open: nothing is changed by hand, and what is wrong is found.

use std::path::PathBuf;

use rusqlite::Connection;
use sandboxer_store::{Ledger as _, SqliteStore, StoreOptions};

use crate::suite::books::*;
use crate::suite::fixture::*;

struct Desk {
    _home: tempfile::TempDir,
    path: PathBuf,
    store: SqliteStore,
    raw: Connection,
}

/// A store with a settled sandbox, a living one and a few meters.
async fn desk() -> Desk {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let store = SqliteStore::open(&path, StoreOptions::default()).await.unwrap();
    fund(&store, ACCOUNT, "10").await;
    let one = start(&store, record(), hold("2")).await.unwrap();
    let open = meter(one.record.id(), "vcpu", 1, at(0));
    let one = book(&store, &one, meters(std::slice::from_ref(&open))).await.unwrap();
    let mut books = settle("1", "0.5");
    books.meters = vec![ended(&open, at(60), "1")];
    end(&store, &one, books).await.unwrap();
    let two = record();
    let mut books = hold("3");
    books.meters = vec![meter(two.id(), "vcpu", 1, at(0))];
    start(&store, two, books).await.unwrap();
    let raw = Connection::open(&path).unwrap();
    Desk { _home: home, path, store, raw }
}

async fn by_hand(desk: &mut Desk, sql: &str) -> Result<(), String> {
    desk.raw.execute_batch(sql).map_err(|error| error.to_string())
}

#[tokio::test]
async fn nothing_is_changed_by_hand() {
    let mut desk = desk().await;
    for (sql, why) in [
        ("UPDATE ledger_entries SET amount = amount + 1 WHERE position = 1", "never changed"),
        ("UPDATE ledger_entries SET balance = 0", "never changed"),
        ("DELETE FROM ledger_entries", "never removed"),
        ("DELETE FROM ledger_entries WHERE position = 1", "never removed"),
        (
            "REPLACE INTO ledger_entries SELECT position, transaction_id, account, 7, 7, time FROM ledger_entries",
            "replaced",
        ),
        ("UPDATE ledger_transactions SET memo = 'x'", "never changed"),
        ("DELETE FROM ledger_transactions", "never removed"),
        (
            "REPLACE INTO ledger_transactions SELECT id, kind, sandbox_id, 'x', time FROM ledger_transactions",
            "replaced",
        ),
        ("UPDATE meters SET ended_at = ended_at + 1 WHERE ended_at IS NOT NULL", "never changed"),
        ("DELETE FROM meters", "never removed"),
        (
            "INSERT INTO ledger_entries (transaction_id, account, amount, balance, time) \
          SELECT id, 'org:poor', -1, -1, 0 FROM ledger_transactions LIMIT 1",
            "below its limit",
        ),
        (
            "INSERT INTO ledger_entries (transaction_id, account, amount, balance, time) \
          SELECT id, 'org:rich', 1, 2, 0 FROM ledger_transactions LIMIT 1",
            "does not follow",
        ),
        (
            "INSERT INTO ledger_entries (transaction_id, account, amount, balance, time) VALUES ('none', 'org:a', 1, 1, 0)",
            "FOREIGN KEY",
        ),
        ("UPDATE accounts SET balance = 9223372036854775807", "CHECK"),
        ("UPDATE holds SET amount = 1 WHERE settled_at IS NOT NULL", "CHECK"),
    ] {
        let error = by_hand(&mut desk, sql).await.unwrap_err();
        assert!(error.contains(why), "{sql}: {error}");
    }
    assert_sound(&desk.store).await;
    let audit = desk.store.audit().await.unwrap();
    assert_eq!((audit.transactions, audit.entries), (4, 10));
}

#[tokio::test]
async fn the_audit_finds_what_is_planted() {
    for (sql, words) in [
        (
            "UPDATE accounts SET balance = balance + 1 WHERE name = 'fees'",
            vec!["fees", "0.500000001 USD", "0.50 USD"],
        ),
        ("UPDATE holds SET amount = amount - 1 WHERE settled_at IS NULL", vec![HELD, "2.999999999 USD"]),
        (
            "INSERT INTO ledger_transactions VALUES ('odd', 'credit', NULL, '', 0); \
             INSERT INTO ledger_entries (transaction_id, account, amount, balance, time) VALUES ('odd', 'org:acme', 5, 5, 0)",
            vec!["odd", "0.000000005 USD", "not to zero"],
        ),
        (
            "INSERT INTO ledger_transactions VALUES ('empty', 'credit', NULL, '', 0)",
            vec!["empty", "no entries"],
        ),
        (
            "DROP TRIGGER ledger_entries_stay; UPDATE ledger_entries SET balance = 1 WHERE position = 2",
            vec!["entry 2", ACCOUNT, "does not follow"],
        ),
        (
            "DROP TRIGGER ledger_entries_keep; DELETE FROM ledger_entries WHERE position = 3",
            vec!["hold/1", "sum to", ACCOUNT],
        ),
        ("DELETE FROM accounts WHERE name = 'fees'", vec!["1 entries", "fees", "not there"]),
        (
            "DROP INDEX meters_running; INSERT INTO meters (sandbox_id, meter, sequence, extension, started_at, alive_at, doc) \
             SELECT sandbox_id, meter, 2, extension, started_at, alive_at, doc FROM meters WHERE ended_at IS NULL",
            vec!["vcpu", "2 intervals"],
        ),
        (
            "PRAGMA ignore_check_constraints = on; UPDATE holds SET amount = 7 WHERE settled_at IS NOT NULL",
            vec!["settled", "0.000000007 USD"],
        ),
        ("DELETE FROM sandboxes WHERE state = 'ready'", vec!["3.00 USD", "which is not there"]),
        ("UPDATE sandboxes SET state = 'destroyed'", vec!["3.00 USD", "which is destroyed"]),
        (
            "UPDATE spend SET used = -1 WHERE subject = 'actor:acme/agt'",
            vec!["actor:acme/agt", "-0.000000001 USD"],
        ),
        (
            "UPDATE spend SET used = used + 1 WHERE subject = 'actor:acme/agt'",
            vec!["the budgets of actor:acme/agt count", "4.500000001 USD, and its sandboxes"],
        ),
        (
            "DELETE FROM spend WHERE subject = 'actor:acme/agt'",
            vec!["the budgets of actor:acme/agt count 0.00 USD"],
        ),
    ] {
        let mut desk = desk().await;
        assert_sound(&desk.store).await;
        by_hand(&mut desk, sql).await.unwrap();
        let wrong = desk.store.audit().await.unwrap().wrong.join("\n");
        for word in words {
            assert!(wrong.contains(word), "{sql}: `{word}` in {wrong:?}");
        }
    }
}

#[tokio::test]
async fn a_batch_that_fails_is_tried_one_by_one() {
    let mut desk = desk().await;
    // A balance that was changed by hand: SQLite refuses what the books would say afterwards.
    by_hand(
        &mut desk,
        "CREATE TRIGGER refuse BEFORE INSERT ON ledger_entries WHEN NEW.account = 'org:broken' \
         BEGIN SELECT RAISE(ABORT, 'planted'); END",
    )
    .await
    .unwrap();
    let other = SqliteStore::open(&desk.path, StoreOptions::default()).await.unwrap();
    let made = futures_of(&other).await;
    assert_eq!(made, [true, true, false, true, true]);
    assert_eq!(balance(&desk.store, "org:whole").await, usd("4"));
    assert_sound(&desk.store).await;
}

async fn futures_of(store: &SqliteStore) -> [bool; 5] {
    let one = |id: &'static str, account: &'static str| async move {
        store.transfer(&transfer(id, "world", account, "1")).await.is_ok()
    };
    let (a, b, c, d, e) = tokio::join!(
        one("1", "org:whole"),
        one("2", "org:whole"),
        one("3", "org:broken"),
        one("4", "org:whole"),
        one("5", "org:whole"),
    );
    [a, b, c, d, e]
}
