//! The outbox: order, exclusiveness, retries.

use std::collections::HashSet;

use sandboxer_core::State;
use sandboxer_store::{Delivery, OutboxStats, Store};
use tokio::task::JoinSet;

use super::Place;
use super::fixture::*;

const SINK: &str = SINKS[0];

async fn claim(store: &dyn Store, seconds: i64, max: u32) -> Vec<Delivery> {
    store.outbox_claim(SINK, "claimer", at(seconds), at(seconds + 30), max).await.unwrap()
}

fn sequences(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.event.sequence).collect()
}

pub(crate) async fn deliveries_are_in_order_per_sandbox(place: &dyn Place) {
    let store = place.open().await;
    let one = put(&*store, record(), State::Ready).await;
    let two = put(&*store, record(), State::Provisioning).await;
    for round in 1..=3 {
        let found = claim(&*store, 0, 10).await;
        let subjects: Vec<_> = found.iter().map(|delivery| delivery.event.subject).collect();
        let expected = if round < 3 { vec![one.record.id(), two.record.id()] } else { vec![one.record.id()] };
        assert_eq!(subjects, expected, "the oldest of each, oldest first");
        assert!(sequences(&found).iter().all(|sequence| *sequence == round));
        assert!(claim(&*store, 0, 10).await.is_empty(), "nothing behind an unfinished one");
        for delivery in found {
            store.outbox_done(delivery.id).await.unwrap();
        }
    }
    assert!(claim(&*store, 0, 10).await.is_empty());
    go(&*store, &one, &[State::Active]).await;
    assert_eq!(sequences(&claim(&*store, 0, 10).await), [4]);
}

pub(crate) async fn sinks_are_apart(place: &dyn Place) {
    let store = place.open().await;
    put(&*store, record(), State::Requested).await;
    for sink in SINKS {
        let found = store.outbox_claim(sink, "a", at(0), at(30), 10).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].sink, sink);
    }
    assert!(store.outbox_claim("nowhere", "a", at(0), at(30), 10).await.unwrap().is_empty());
}

pub(crate) async fn two_claimers_never_get_the_same(place: &dyn Place) {
    let stores = [place.open().await, place.open().await, place.open().await];
    for _ in 0..30 {
        put(&*stores[0], record(), State::Requested).await;
    }
    let mut tasks = JoinSet::new();
    for turn in 0..9 {
        let store = stores[turn % 3].clone();
        tasks.spawn(async move {
            let mut out = Vec::new();
            loop {
                let found = claim(&*store, 0, 2).await;
                if found.is_empty() {
                    return out;
                }
                out.extend(found.into_iter().map(|delivery| delivery.id));
            }
        });
    }
    let all: Vec<i64> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(all.len(), 30);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 30);
}

pub(crate) async fn a_retry_waits_and_keeps_the_order(place: &dyn Place) {
    let store = place.open().await;
    put(&*store, record(), State::Provisioning).await;
    let first = claim(&*store, 0, 10).await;
    assert_eq!((sequences(&first), first[0].attempts), (vec![1], 0));
    store.outbox_retry(first[0].id, at(20), "503").await.unwrap();
    assert!(claim(&*store, 19, 10).await.is_empty(), "neither early nor out of order");
    let again = claim(&*store, 20, 10).await;
    assert_eq!((again[0].id, again[0].attempts), (first[0].id, 1));
    store.outbox_done(again[0].id).await.unwrap();
    let next = claim(&*store, 20, 10).await;
    assert_eq!((sequences(&next), next[0].attempts), (vec![2], 0));
}

pub(crate) async fn a_dead_claimers_deliveries_pass_on(place: &dyn Place) {
    let store = place.open().await;
    put(&*store, record(), State::Provisioning).await;
    let first = claim(&*store, 0, 10).await;
    let other = place.open().await;
    assert!(claim(&*other, 29, 10).await.is_empty());
    let again = claim(&*other, 30, 10).await;
    assert_eq!((again[0].id, again[0].attempts), (first[0].id, 1));
}

pub(crate) async fn stats_tell_what_is_pending(place: &dyn Place) {
    let store = place.open().await;
    assert_eq!(store.outbox_stats(SINK).await.unwrap(), OutboxStats::default());
    put(&*store, record(), State::Provisioning).await;
    let pending = OutboxStats { pending: 2, oldest: Some(at(0)), last_error: None, next_at: Some(at(0)) };
    assert_eq!(store.outbox_stats(SINK).await.unwrap(), pending);
    let first = claim(&*store, 0, 10).await;
    store.outbox_retry(first[0].id, at(20), &"é".repeat(5_000)).await.unwrap();
    let stats = store.outbox_stats(SINK).await.unwrap();
    assert!(stats.last_error.is_some_and(|text| text.starts_with("éé") && text.chars().count() <= 1_000));
    assert_eq!(stats.next_at, Some(at(20)));
    // Somebody wants it now, whatever was planned; what is on its way stays with whoever has it.
    assert_eq!(store.outbox_hurry("nowhere", at(5)).await.unwrap(), 0);
    assert_eq!(store.outbox_hurry(SINK, at(5)).await.unwrap(), 1);
    assert_eq!(store.outbox_hurry(SINK, at(5)).await.unwrap(), 0);
    assert_eq!(store.outbox_stats(SINK).await.unwrap().next_at, Some(at(5)));
    assert_eq!(claim(&*store, 5, 10).await.len(), 1);
    assert_eq!(store.outbox_hurry(SINK, at(6)).await.unwrap(), 0);
    store.outbox_done(first[0].id).await.unwrap();
    assert_eq!(store.outbox_stats(SINK).await.unwrap(), OutboxStats { pending: 1, ..pending });
}

pub(crate) async fn done_twice_is_fine(place: &dyn Place) {
    let store = place.open().await;
    put(&*store, record(), State::Ready).await;
    let first = claim(&*store, 0, 10).await;
    store.outbox_done(first[0].id).await.unwrap();
    store.outbox_done(first[0].id).await.unwrap();
    assert_eq!(sequences(&claim(&*store, 0, 10).await), [2]);
}
