//! The hot queries walk indexes: asked of SQLite itself.

use std::collections::BTreeMap;

use rusqlite::Connection;
use sandboxer_core::page::Limit;
use sandboxer_core::{SandboxId, State};

use super::{
    SqliteStore, StoreOptions, dead, events, list, memory, outbox, outgoing, prune, sandboxes, snapshots,
};
use crate::model::{Filter, SnapshotFilter};

/// What SQLite says it would do, step by step.
pub(super) fn steps(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    // Parameters that nobody gave are null.
    let rows = statement.raw_query().mapped(|row| row.get("detail"));
    rows.collect::<Result<_, _>>().unwrap()
}

fn plan(connection: &Connection, sql: &str) -> String {
    steps(connection, sql).join("; ")
}

#[tokio::test]
async fn no_hot_query_scans_or_sorts() {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&home.path().join("store.db"), StoreOptions::default()).await.unwrap();
    let mut writer = store.writer.lock().await;
    let connection = writer.connection().unwrap();
    for (sql, index) in [
        (sandboxes::GET, "sqlite_autoindex_sandboxes_1"),
        (sandboxes::SHARING, "sandboxes_sharing"),
        (sandboxes::OVERDUE, "sandboxes_overdue"),
        (sandboxes::REUSABLE, "sandboxes_reuse"),
        (events::ALL, "INTEGER PRIMARY KEY"),
        (events::OF_SUBJECT, "events_subject"),
        (events::OF_OWNER, "events_owner"),
        (events::OF_SUBJECT_AND_OWNER, "events_subject"),
        (events::POSITION, "events_id"),
        (snapshots::GET, "sqlite_autoindex_snapshots_1"),
        (outbox::IS_DUE, "outbox_due"),
        (outbox::DUE, "outbox_due"),
        (dead::LIST_SINK, "dead_letters_sink"),
        (prune::OLD, "sandboxes_destroyed"),
    ] {
        let plan = plan(connection, sql);
        assert!(plan.contains(index), "{sql}\n{plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
    }
    // Reads every webhook, of which there are few, and looks up each one's queue.
    let due = plan(connection, outgoing::WEBHOOKS_DUE);
    assert!(due.starts_with("SCAN w;") && due.contains("SEARCH o ") && due.contains("outbox_due"), "{due}");
    // Reads all breakers, of which there are a few.
    let past = plan(connection, memory::PAST);
    assert!(past.contains("SEARCH route_latency USING PRIMARY KEY (profile=?)"), "{past}");
    // Reads every living one, in the order of the index that has only those.
    let plan = plan(connection, sandboxes::LIVING);
    assert_eq!(plan, "SCAN sandboxes USING INDEX sandboxes_living");
}

#[tokio::test]
async fn no_listing_scans_or_sorts() {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&home.path().join("store.db"), StoreOptions::default()).await.unwrap();
    let mut writer = store.writer.lock().await;
    let connection = writer.connection().unwrap();
    let label = |name: &str| (name.to_owned(), "x".to_owned());
    for state in [None, Some(State::Ready), Some(State::Destroyed)] {
        for owner_key in [None, Some("key_1".to_owned())] {
            for labels in [vec![], vec![label("a")], vec![label("a"), label("b")]] {
                for all in [false, true] {
                    let labels: BTreeMap<_, _> = labels.iter().cloned().collect();
                    let filter = Filter { state, labels, all, owner_key: owner_key.clone() };
                    let lead = list::lead(connection, &filter).unwrap();
                    let query = list::page_query(lead, &filter, Some(SandboxId::generate()), Limit::DEFAULT);
                    let plan = plan(connection, query.sql());
                    let sound = !plan.contains("SCAN") && !plan.contains("TEMP B-TREE");
                    assert!(sound, "{filter:?}\n{}\n{plan}", query.sql());
                }
            }
        }
    }
}

#[tokio::test]
async fn no_listing_of_snapshots_scans_or_sorts() {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&home.path().join("store.db"), StoreOptions::default()).await.unwrap();
    let mut writer = store.writer.lock().await;
    let connection = writer.connection().unwrap();
    for sandbox in [None, Some(SandboxId::generate())] {
        for owner_key in [None, Some("key_1".to_owned())] {
            let filter = SnapshotFilter { sandbox, owner_key };
            let query = snapshots::page_query(&filter, None, Limit::DEFAULT);
            let plan = plan(connection, query.sql());
            let sound = plan.starts_with("SEARCH") && !plan.contains("TEMP B-TREE");
            assert!(sound, "{filter:?}\n{}\n{plan}", query.sql());
        }
    }
    // Reads every unsettled one, in the order of the index that has only those.
    let plan = plan(connection, snapshots::UNSETTLED);
    assert_eq!(plan, "SCAN snapshots USING INDEX snapshots_unsettled");
}
