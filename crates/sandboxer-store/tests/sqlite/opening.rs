//! Opening: what is made, what is recognised, what is refused and how.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sandboxer_core::{Error, ErrorKind, Retry};
use sandboxer_store::{SqliteStore, Store as _, StoreOptions};

fn options() -> StoreOptions {
    StoreOptions { source: "sandboxer/test".into(), hubs: Vec::new() }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

async fn sql(path: &Path, text: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(text).unwrap();
}

async fn refusal(path: &Path) -> Error {
    let error = SqliteStore::open(path, options()).await.unwrap_err();
    assert!(
        error.to_string().contains(path.file_name().unwrap().to_str().unwrap()),
        "{error:?} names the path"
    );
    assert!(error.hint().is_some(), "{error:?} has a hint");
    error
}

#[tokio::test]
async fn only_the_user_can_read_what_is_made() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state/deep/store.db");
    let store = SqliteStore::open(&path, options()).await.unwrap();
    store.ping().await.unwrap();
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let file = file.unwrap().path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    store.close().await;
    assert!(!path.with_file_name("store.db-wal").exists(), "the last one tidies up");
    SqliteStore::open(&path, options()).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    SqliteStore::open(&path, options()).await.unwrap().close().await;
    sql(&path, "PRAGMA user_version = 99").await;
    let error = refusal(&path).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::StoreFailed, Retry::Permanent));
    assert!(error.to_string().contains("schema 99"), "{error:?}");
}

#[tokio::test]
async fn a_file_of_the_first_schema_is_brought_up_to_date() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let first = include_str!("../../migrations/sqlite/0001_sandboxes_events_outbox_keys.sql");
    sql(
        &path,
        &format!(
            "PRAGMA journal_mode = wal; {first}; PRAGMA application_id = 1396854616; PRAGMA user_version = 1"
        ),
    )
    .await;
    let store = SqliteStore::open(&path, options()).await.unwrap();
    assert!(store.living().await.unwrap().is_empty());
    assert!(store.host_list().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_database_of_another_program_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in [("plain.db", "CREATE TABLE t (x)"), ("marked.db", "PRAGMA application_id = 7")] {
        let path = home.path().join(name);
        sql(&path, text).await;
        let before = std::fs::read(&path).unwrap();
        assert_eq!(refusal(&path).await.kind(), ErrorKind::StoreFailed);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    std::fs::write(&path, "not a database at all, just words ".repeat(500)).unwrap();
    let error = refusal(&path).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::StoreFailed, Retry::Permanent));
    assert!(error.to_string().contains("damaged"), "{error:?}");
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_refused() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("file"), "").unwrap();
    let below_a_file = SqliteStore::open(&home.path().join("file/store.db"), options()).await.unwrap_err();
    // Nobody may make a directory here, root included.
    let in_proc = SqliteStore::open(Path::new("/proc/self/store/store.db"), options()).await.unwrap_err();
    for error in [below_a_file, in_proc] {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::StoreFailed, Retry::Permanent), "{error:?}");
        assert!(error.hint().is_some());
    }
    std::fs::create_dir(home.path().join("directory.db")).unwrap();
    assert_eq!(refusal(&home.path().join("directory.db")).await.kind(), ErrorKind::StoreFailed);
}

#[tokio::test]
async fn a_name_with_special_signs_is_only_a_name() {
    let home = tempfile::tempdir().unwrap();
    for name in ["file:x?mode=memory", "a b%20'c\".db", ":memory:"] {
        let path = home.path().join(name);
        SqliteStore::open(&path, options()).await.unwrap().close().await;
        assert!(path.exists(), "{name}");
    }
}
