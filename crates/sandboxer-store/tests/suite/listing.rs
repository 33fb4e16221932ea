//! Listings: order, pages, filters.

use sandboxer_core::page::Limit;
use sandboxer_core::{ErrorKind, State};
use sandboxer_store::{Filter, Store};

use super::Place;
use super::fixture::*;

async fn many(store: &dyn Store, count: usize) -> Vec<sandboxer_core::SandboxId> {
    let mut out = Vec::new();
    for _ in 0..count {
        out.insert(0, put(store, record(), State::Ready).await.record.id());
    }
    out
}

pub(crate) async fn pages_are_newest_first_and_end(place: &dyn Place) {
    let store = place.open().await;
    assert!(listed(&*store, &Filter::default()).await.is_empty());
    let expected = many(&*store, 7).await;
    assert_eq!(listed(&*store, &Filter::default()).await, expected);
    let exact = store.list(&Filter::default(), None, Limit::new(7).unwrap()).await.unwrap();
    assert_eq!((exact.items.len(), exact.next_cursor), (7, None));
    let first = store.get(expected[0]).await.unwrap().unwrap();
    assert_eq!(exact.items[0], first.record.sandbox);
}

pub(crate) async fn pages_stay_stable_while_sandboxes_come(place: &dyn Place) {
    let store = place.open().await;
    let expected = many(&*store, 9).await;
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list(&Filter::default(), cursor.as_deref(), Limit::new(4).unwrap()).await.unwrap();
        seen.extend(page.items.iter().map(|sandbox| sandbox.sandbox_id));
        many(&*store, 3).await;
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, expected);
}

/// Every combination of filters against the same question asked of all records.
pub(crate) async fn filters_hold_alone_and_together(place: &dyn Place) {
    let store = place.open().await;
    let mut records = Vec::new();
    for turn in 0..48 {
        let mut record = record();
        record.owner_key = [None, Some("key_a".to_owned()), Some("key_b".to_owned())][turn % 3].clone();
        record.sandbox.labels = match turn % 4 {
            0 => labels([]),
            1 => labels([("team", "a")]),
            2 => labels([("team", "a"), ("zone", "x")]),
            _ => labels([("team", "b"), ("zone", "x")]),
        };
        let state =
            [State::Ready, State::Active, State::Destroyed, State::Destroyed, State::Failed][turn % 5];
        records.insert(0, put(&*store, record, state).await.record);
    }
    let label_sets = [
        labels([]),
        labels([("team", "a")]),
        labels([("zone", "x")]),
        labels([("team", "a"), ("zone", "x")]),
        labels([("team", "x")]),
    ];
    for state in [None, Some(State::Ready), Some(State::Destroyed), Some(State::Paused)] {
        for owner_key in [None, Some("key_a".to_owned()), Some("key_c".to_owned())] {
            for (labels, all) in label_sets.iter().flat_map(|labels| [(labels, false), (labels, true)]) {
                let filter = Filter { state, labels: labels.clone(), all, owner_key: owner_key.clone() };
                let expected: Vec<_> = records
                    .iter()
                    .filter(|record| match state {
                        Some(state) => record.state() == state,
                        None => all || record.state().is_living(),
                    })
                    .filter(|record| owner_key.is_none() || record.owner_key == owner_key)
                    .filter(|record| labels.iter().all(|(n, v)| record.sandbox.labels.get(n) == Some(v)))
                    .map(|record| record.id())
                    .collect();
                assert_eq!(listed(&*store, &filter).await, expected, "{filter:?}");
            }
        }
    }
}

pub(crate) async fn labels_follow_an_update(place: &dyn Place) {
    let store = place.open().await;
    let mut with = record();
    with.sandbox.labels = labels([("team", "a"), ("zone", "x")]);
    let stored = put(&*store, with, State::Ready).await;
    let mut update = change(&stored, &[]);
    update.record.sandbox.labels = labels([("team", "b")]);
    let stored = store.update(update).await.unwrap();
    let by = |pair| Filter { labels: labels([pair]), ..Filter::default() };
    assert!(listed(&*store, &by(("team", "a"))).await.is_empty());
    assert!(listed(&*store, &by(("zone", "x"))).await.is_empty());
    assert_eq!(listed(&*store, &by(("team", "b"))).await, [stored.record.id()]);
    go(&*store, &stored, &[State::Destroying, State::Destroyed]).await;
    assert!(listed(&*store, &by(("team", "b"))).await.is_empty());
    let all = Filter { all: true, ..by(("team", "b")) };
    assert_eq!(listed(&*store, &all).await, [stored.record.id()]);
}

pub(crate) async fn a_foreign_cursor_is_refused(place: &dyn Place) {
    let store = place.open().await;
    many(&*store, 3).await;
    let page = store.list(&Filter::default(), None, Limit::new(1).unwrap()).await.unwrap();
    let good = page.next_cursor.unwrap();
    for bad in ["", "x", &good[1..], &good[..good.len() - 1], &format!("{good}0"), "p1' OR 1=1 --", "é"] {
        let error = store.list(&Filter::default(), Some(bad), Limit::DEFAULT).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
        assert!(error.hint().is_some());
    }
}
