//! The hot queries of the books walk indexes: asked of SQLite itself.

use jiff::Timestamp;
use sandboxer_core::SandboxId;
use sandboxer_core::page::Limit;

use super::{accounts, batch, budgets, entries, holds, meters};
use crate::ledger::MeterFilter;
use crate::sqlite::plans::steps as plan;
use crate::sqlite::{SqliteStore, StoreOptions};

/// Walks a table as a whole. The lists that come as parameters are read as a whole of course.
fn scans(step: &str) -> bool {
    step.starts_with("SCAN") && !step.contains("VIRTUAL TABLE") && !step.contains("CONSTANT ROW")
}

#[tokio::test]
async fn no_hot_query_of_the_books_scans() {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&home.path().join("store.db"), StoreOptions::default()).await.unwrap();
    let mut writer = store.writer.lock().await;
    let connection = writer.connection().unwrap();
    for (sql, sorts) in [
        (accounts::GET, false),
        (holds::READ, false),
        (holds::FREE, false),
        (batch::READ, false),
        (entries::ALL, false),
        (entries::OF_ACCOUNT, false),
        (entries::OF_SANDBOX, true),
    ] {
        let plan = plan(connection, sql);
        assert!(!plan.iter().any(|step| scans(step)), "{sql}\n{plan:#?}");
        assert_eq!(plan.iter().any(|step| step.contains("TEMP B-TREE")), sorts, "{sql}\n{plan:#?}");
    }
    // Every budget is read, and for each only the days that it is about.
    let plan = plan(connection, budgets::LIST);
    assert!(
        plan.iter().any(|step| step.contains("SEARCH s USING PRIMARY KEY (subject=? AND day>? AND day<?)"))
    );
}

#[tokio::test]
async fn no_listing_of_meters_scans_or_sorts() {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&home.path().join("store.db"), StoreOptions::default()).await.unwrap();
    let mut writer = store.writer.lock().await;
    let connection = writer.connection().unwrap();
    for sandbox in [None, Some(SandboxId::generate())] {
        for owner_key in [None, Some("key_1".to_owned())] {
            for extension in [None, Some("ext.native".to_owned())] {
                for from in [None, Some(Timestamp::UNIX_EPOCH)] {
                    let filter = MeterFilter {
                        sandbox,
                        extension: extension.clone(),
                        owner_key: owner_key.clone(),
                        from,
                        until: from,
                    };
                    let query = meters::page_query(&filter, from.map(|_| (1, 1)), Limit::DEFAULT);
                    let plan = plan(connection, query.sql());
                    assert!(plan[0].starts_with("SEARCH"), "{filter:?}\n{plan:?}");
                    // Those of one sandbox are few.
                    let sorts = plan.iter().any(|step| step.contains("TEMP B-TREE"));
                    assert_eq!(sorts, sandbox.is_some(), "{filter:?}\n{plan:?}");
                }
            }
        }
    }
}
