//! The store after trouble: it says what is wrong, and works again once that is over.

use std::sync::Arc;

use jiff::Timestamp;
use sandboxer_core::{ErrorKind, Retry};
use sqlx::Connection as _;

use super::{SqliteStore, StoreOptions};
use crate::model::{Idempotency, Replay};
use crate::store::Store as _;

fn request(key: &str, size: usize) -> Idempotency {
    Idempotency { scope: "local".into(), key: key.repeat(size), body_hash: "body".into() }
}

#[tokio::test]
async fn a_full_disk_is_told_and_survived() {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&home.path().join("store.db"), StoreOptions::default()).await.unwrap();
    {
        let mut writer = store.writer.lock().await;
        let connection = writer.connection().await.unwrap();
        // SQLite then answers as it does when the disk has no more pages.
        sqlx::query("PRAGMA max_page_count = 60").execute(connection).await.unwrap();
    }
    let error = store.idempotency_begin(&request("k", 1_000_000), Timestamp::UNIX_EPOCH).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::NoSpace, Retry::Temporary), "{error:?}");
    assert!(error.hint().is_some() && error.to_string().contains("store.db"));
    // The connection with the limit was given up; the new one has none.
    let again = store.idempotency_begin(&request("k", 1_000_000), Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(again, Replay::New);
}

#[tokio::test]
async fn a_connection_left_in_a_transaction_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&home.path().join("store.db"), StoreOptions::default()).await.unwrap();
    {
        let mut writer = store.writer.lock().await;
        let connection = writer.connection().await.unwrap();
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
        // As SQLite does by itself on some errors; the rollback that follows then fails.
        sqlx::query("ROLLBACK").execute(&mut *tx).await.unwrap();
    }
    let answer = store.idempotency_begin(&request("k", 1), Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(answer, Replay::New);
}

#[tokio::test]
async fn another_process_that_holds_the_lock_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let store = Arc::new(SqliteStore::open(&path, StoreOptions::default()).await.unwrap());
    let other = SqliteStore::open(&path, StoreOptions::default()).await.unwrap();
    let mut writer = other.writer.lock().await;
    let tx = writer.connection().await.unwrap().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.idempotency_begin(&request("k", 1), Timestamp::UNIX_EPOCH).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    store.ping().await.unwrap();
    assert!(store.key_list().await.unwrap().is_empty(), "reads do not wait");
    tx.rollback().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), Replay::New);
}
