//! Hubs: known to every process from the moment that one was told.

use std::path::Path;

use sandboxer_core::{ErrorKind, State};
use sandboxer_store::{Outgoing as _, Outlet, SqliteStore, Store as _, StoreOptions};

use crate::suite::fixture::*;

async fn open(path: &Path, hubs: &[Outlet]) -> SqliteStore {
    SqliteStore::open(path, StoreOptions { source: SOURCE.into(), hubs: hubs.to_vec() }).await.unwrap()
}

fn money() -> Outlet {
    Outlet { name: "fin-hub".into(), patterns: vec!["credits.*".parse().unwrap()] }
}

async fn pending(store: &SqliteStore, sink: &str) -> u64 {
    store.outbox_stats(sink).await.unwrap().pending
}

#[tokio::test]
async fn a_process_that_was_told_nothing_queues_for_the_hubs_of_the_others() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let first = open(&path, &[]).await;
    put(&first, record(), State::Ready).await;
    // It was open before anybody knew of a hub.
    let second = open(&path, &["state-hub".into(), money()]).await;
    assert_eq!(pending(&second, "state-hub").await, 0, "what was before is not queued");
    put(&first, record(), State::Ready).await;
    assert_eq!(pending(&second, "state-hub").await, 3);
    assert_eq!(pending(&second, "fin-hub").await, 0, "it wants none of these");
    assert_eq!(first.hubs().await.unwrap(), [money(), "state-hub".into()]);
    let sinks = first.sink_stats().await.unwrap();
    assert_eq!(
        sinks.iter().map(|sink| (&*sink.sink, sink.pending)).collect::<Vec<_>>(),
        [("fin-hub", 0), ("state-hub", 3)]
    );
}

#[tokio::test]
async fn what_a_hub_wants_can_change() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    open(&path, &[money()]).await;
    let wider = Outlet { patterns: vec!["sandbox.*".parse().unwrap()], ..money() };
    let store = open(&path, std::slice::from_ref(&wider)).await;
    assert_eq!(store.hubs().await.unwrap(), [wider]);
    put(&store, record(), State::Ready).await;
    assert_eq!(pending(&store, "fin-hub").await, 3);
}

#[tokio::test]
async fn a_hub_is_forgotten_with_what_waits_for_it() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let told = open(&path, &["state-hub".into(), "audit".into()]).await;
    put(&told, record(), State::Ready).await;
    assert_eq!(told.hub_forget("state-hub").await.unwrap_err().kind(), ErrorKind::IllegalState);
    let store = open(&path, &[]).await;
    let first = store.outbox_claim("state-hub", "me", at(0), at(60), 1).await.unwrap().remove(0);
    store.outbox_bury(first.id, "nobody is there", at(1)).await.unwrap();
    assert_eq!(store.hub_forget("state-hub").await.unwrap(), Some(3), "two wait, and one was given up");
    assert_eq!(store.hub_forget("state-hub").await.unwrap(), None);
    put(&store, record(), State::Ready).await;
    assert_eq!(pending(&store, "state-hub").await, 0);
    assert_eq!(pending(&store, "audit").await, 6);
    assert_eq!(store.sink_stats().await.unwrap().len(), 1);
}
