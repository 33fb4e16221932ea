//! Forgetting.

use sandboxer_core::State;
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_store::{EventFilter, Filter, Inserted, Replay, Store};

use super::Place;
use super::fixture::*;

fn ended(seconds: i64) -> SandboxRecord {
    let mut record = record();
    record.sandbox.destroyed_at = Some(at(seconds));
    record.sandbox.labels = labels([("team", "a")]);
    record
}

/// Delivers everything to everybody.
pub(crate) async fn deliver_all(store: &dyn Store) {
    for sink in SINKS {
        loop {
            let found = store.outbox_claim(sink, "a", at(0), at(1), 1_000).await.unwrap();
            if found.is_empty() {
                break;
            }
            for delivery in found {
                store.outbox_done(delivery.id).await.unwrap();
            }
        }
    }
}

fn all() -> Filter {
    Filter { all: true, ..Filter::default() }
}

pub(crate) async fn old_destroyed_sandboxes_go_with_everything(place: &dyn Place) {
    let store = place.open().await;
    let old = keyed(insert(ended(10), State::Destroyed), "k", "body");
    let Inserted::New(old) = store.insert(old).await.unwrap() else { panic!("not new") };
    let young = put(&*store, ended(20), State::Destroyed).await;
    deliver_all(&*store).await;
    assert_eq!(store.prune(at(20)).await.unwrap(), 1);
    assert_eq!(store.get(old.record.id()).await.unwrap(), None);
    assert_eq!(listed(&*store, &all()).await, [young.record.id()]);
    let by_label = Filter { labels: labels([("team", "a")]), ..all() };
    assert_eq!(listed(&*store, &by_label).await, [young.record.id()]);
    let of_old = EventFilter { subject: Some(old.record.id()), owner_key: None };
    assert!(store.events(&of_old, 0, Default::default()).await.unwrap().is_empty());
    let again = store.insert(keyed(insert(record(), State::Requested), "k", "other")).await.unwrap();
    assert!(matches!(again, Inserted::New(_)), "its key went as well");
    assert_eq!(store.prune(at(20)).await.unwrap(), 0);
}

pub(crate) async fn what_lives_or_is_undelivered_stays(place: &dyn Place) {
    let store = place.open().await;
    let mut kept = Vec::new();
    for state in State::ALL.into_iter().filter(|state| state.is_living()) {
        kept.insert(0, put(&*store, record(), state).await.record.id());
    }
    deliver_all(&*store).await;
    let undelivered = put(&*store, ended(1), State::Destroyed).await;
    kept.insert(0, undelivered.record.id());
    let before = store.last_position().await.unwrap();
    assert_eq!(store.prune(at(1_000_000)).await.unwrap(), 0);
    assert_eq!(listed(&*store, &all()).await, kept);
    assert_eq!(store.outbox_stats(SINKS[0]).await.unwrap().pending, 5);
    assert_eq!(store.last_position().await.unwrap(), before);
    deliver_all(&*store).await;
    assert_eq!(store.prune(at(1_000_000)).await.unwrap(), 1);
}

pub(crate) async fn many_are_pruned_while_others_write(place: &dyn Place) {
    let (store, other) = (place.open().await, place.open().await);
    for turn in 0..250 {
        put(&*store, ended(turn), State::Destroyed).await;
        if turn % 50 == 0 {
            // Undelivered ones are spread among the rest and must not hold it up.
            deliver_all(&*store).await;
        }
    }
    for sink in SINKS {
        for _ in 0..4 {
            for delivery in store.outbox_claim(sink, "a", at(0), at(1), 150).await.unwrap() {
                store.outbox_done(delivery.id).await.unwrap();
            }
        }
    }
    let undelivered = {
        let mut seen = std::collections::HashSet::new();
        for sink in SINKS {
            for delivery in store.outbox_claim(sink, "a", at(100), at(101), 1_000).await.unwrap() {
                seen.insert(delivery.event.subject);
            }
        }
        seen
    };
    let write = async {
        let mut written = 0;
        for _ in 0..20 {
            put(&*other, record(), State::Ready).await;
            written += 1;
        }
        written
    };
    let (gone, written) = tokio::join!(store.prune(at(1_000)), write);
    assert_eq!(gone.unwrap(), 250 - undelivered.len() as u64);
    assert_eq!(store.living().await.unwrap().len(), written);
    assert_eq!(listed(&*store, &all()).await.len(), written + undelivered.len());
}

pub(crate) async fn positions_are_never_given_twice(place: &dyn Place) {
    let store = place.open().await;
    put(&*store, ended(1), State::Destroyed).await;
    deliver_all(&*store).await;
    assert_eq!(store.prune(at(10)).await.unwrap(), 1);
    assert_eq!(store.last_position().await.unwrap(), 5);
    put(&*store, record(), State::Requested).await;
    assert_eq!(store.last_position().await.unwrap(), 6);
}

pub(crate) async fn old_request_keys_go(place: &dyn Place) {
    let store = place.open().await;
    for turn in 0..150 {
        store.idempotency_begin(&request(&format!("k{turn}"), "body"), at(0)).await.unwrap();
        store
            .idempotency_finish(&request(&format!("k{turn}"), "body"), Some((200, String::new())))
            .await
            .unwrap();
    }
    store.idempotency_begin(&request("young", "body"), at(10)).await.unwrap();
    assert_eq!(store.prune(at(10)).await.unwrap(), 0);
    assert_eq!(store.idempotency_begin(&request("k7", "other"), at(11)).await.unwrap(), Replay::New);
    assert_eq!(store.idempotency_begin(&request("young", "body"), at(11)).await.unwrap(), Replay::InFlight);
}
