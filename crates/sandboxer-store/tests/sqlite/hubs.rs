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
async fn a_sink_that_wants_to_be_left_alone_is_by_everybody() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let (one, other) = (open(&path, &["state-hub".into()]).await, open(&path, &[]).await);
    put(&one, record(), State::Ready).await;
    let claimed =
        async |second| other.outbox_claim("state-hub", "me", at(second), at(second), 9).await.unwrap().len();
    assert_eq!(claimed(1).await, 1);
    one.outbox_pause("state-hub", at(60)).await.unwrap();
    one.outbox_pause("state-hub", at(30)).await.unwrap();
    assert_eq!((claimed(59).await, claimed(60).await), (0, 1), "the longer one counts");
    one.outbox_pause("state-hub", at(90)).await.unwrap();
    other.outbox_hurry("state-hub", at(61)).await.unwrap();
    assert_eq!(claimed(61).await, 1);
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
    assert_eq!(told.hub_forget("state-hub", at(0)).await.unwrap_err().kind(), ErrorKind::IllegalState);
    told.hubs_told(at(0)).await.unwrap();
    let store = open(&path, &[]).await;
    let first = store.outbox_claim("state-hub", "me", at(0), at(60), 1).await.unwrap().remove(0);
    store.outbox_bury(first.id, "nobody is there", at(1)).await.unwrap();
    let running = store.hub_forget("state-hub", at(60)).await.unwrap_err();
    assert_eq!(running.kind(), ErrorKind::IllegalState, "a process that runs has its URL");
    assert_eq!(
        store.hub_forget("state-hub", at(91)).await.unwrap(),
        Some(3),
        "two wait, and one was given up"
    );
    assert_eq!(store.hub_forget("state-hub", at(91)).await.unwrap(), None);
    put(&store, record(), State::Ready).await;
    assert_eq!(pending(&store, "state-hub").await, 0);
    assert_eq!(pending(&store, "audit").await, 6);
    assert_eq!(store.sink_stats().await.unwrap().len(), 1);
}
