//! The store after trouble: it says what is wrong, and works again once that is over.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::{Error, ErrorKind, Retry};
use tokio::time::Instant;

use super::connection::PATIENCE;
use super::fault::{Attempt, Fault};
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
        // SQLite then answers as it does when the disk has no more pages.
        let limit = "PRAGMA max_page_count = 60";
        writer.connection().unwrap().query_row(limit, [], |_| Ok(())).unwrap();
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
        // As a panic in the middle leaves it.
        writer.connection().unwrap().execute_batch("BEGIN IMMEDIATE").unwrap();
    }
    let answer = store.idempotency_begin(&request("k", 1), Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(answer, Replay::New);
}

#[tokio::test]
async fn a_transaction_that_sqlite_ended_by_itself_is_told_as_what_it_was() {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&home.path().join("store.db"), StoreOptions::default()).await.unwrap();
    let outcome: Attempt<()> = store
        .writer
        .lock()
        .await
        .transaction(Instant::now() + PATIENCE, |connection| {
            // As SQLite does by itself on some errors; the rollback that follows then fails.
            connection.execute_batch("ROLLBACK")?;
            Err(Error::new(ErrorKind::Conflict, "as it was").into())
        })
        .await;
    assert!(matches!(outcome, Err(Fault::Own(error)) if error.kind() == ErrorKind::Conflict));
    let answer = store.idempotency_begin(&request("k", 1), Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(answer, Replay::New);
}

#[tokio::test]
async fn what_fails_in_the_middle_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&home.path().join("store.db"), StoreOptions::default()).await.unwrap();
    let failed = store
        .write("test", |connection| {
            let request = request("k", 1);
            super::idempotency::begin(connection, &request, Timestamp::UNIX_EPOCH)?;
            Err::<(), _>(Fault::internal("in the middle"))
        })
        .await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Internal);
    let answer = store.idempotency_begin(&request("k", 1), Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(answer, Replay::New);
}

#[tokio::test]
async fn a_file_that_was_replaced_is_noticed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let store = SqliteStore::open(&path, StoreOptions::default()).await.unwrap();
    store.ping().await.unwrap();
    std::fs::rename(&path, home.path().join("away.db")).unwrap();
    let gone = store.ping().await.unwrap_err();
    assert_eq!((gone.kind(), gone.retry()), (ErrorKind::StoreFailed, Retry::Permanent), "{gone:?}");
    std::fs::write(&path, "another").unwrap();
    assert!(store.ping().await.unwrap_err().to_string().contains("replaced"));
    std::fs::rename(home.path().join("away.db"), &path).unwrap();
    store.ping().await.unwrap();
}

#[tokio::test]
async fn patience_is_counted_from_the_call_on() {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&home.path().join("store.db"), StoreOptions::default()).await.unwrap();
    let _writes = store.writer.lock().await;
    let outcome = store.write_within(Duration::from_millis(20), "test", |_| Ok(())).await;
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::StoreBusy, Retry::Temporary), "{error:?}");
    assert!(error.retry_after().is_some());
    assert!(error.to_string().contains("locked"), "{error:?}");
}

#[tokio::test]
async fn another_process_that_holds_the_lock_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let store = Arc::new(SqliteStore::open(&path, StoreOptions::default()).await.unwrap());
    let other = SqliteStore::open(&path, StoreOptions::default()).await.unwrap();
    let mut writer = other.writer.lock().await;
    let other = writer.connection().unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.idempotency_begin(&request("k", 1), Timestamp::UNIX_EPOCH).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    store.ping().await.unwrap();
    assert!(store.key_list().await.unwrap().is_empty(), "reads do not wait");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), Replay::New);
}
