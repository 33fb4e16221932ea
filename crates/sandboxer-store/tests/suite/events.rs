//! Events: gapless per sandbox, ordered over all.

use std::collections::BTreeMap;

use sandboxer_core::page::Limit;
use sandboxer_core::{EventId, SandboxId, State};
use sandboxer_store::{EventFilter, Store};
use tokio::task::JoinSet;

use super::Place;
use super::fixture::*;

/// The sequences of all events, by sandbox, in the order of their positions.
pub(crate) async fn sequences(store: &dyn Store) -> BTreeMap<SandboxId, Vec<u64>> {
    let (mut out, mut after) = (BTreeMap::<_, Vec<_>>::new(), 0);
    loop {
        let some = store.events(&EventFilter::default(), after, Limit::new(50).unwrap()).await.unwrap();
        let Some(last) = some.last() else { return out };
        assert!(some.windows(2).all(|two| two[0].position < two[1].position));
        after = last.position;
        for placed in some {
            out.entry(placed.event.subject).or_default().push(placed.event.sequence);
        }
    }
}

fn is_gapless(sequences: &[u64]) -> bool {
    sequences.iter().copied().eq(1..=sequences.len() as u64)
}

pub(crate) async fn sequences_have_no_gaps(place: &dyn Place) {
    let store = place.open().await;
    let one = put(&*store, record(), State::Provisioning).await;
    let two = put(&*store, record(), State::Requested).await;
    let one = go(&*store, &one, &[State::Ready, State::Active]).await;
    store.update(change(&one, &[State::Ready])).await.unwrap_err();
    go(&*store, &two, &[State::Provisioning]).await;
    go(&*store, &one, &[State::Paused]).await;
    let found = sequences(&*store).await;
    assert_eq!(found[&one.record.id()], [1, 2, 3, 4, 5]);
    assert_eq!(found[&two.record.id()], [1, 2]);
    assert_eq!(store.last_position().await.unwrap(), 7);
}

pub(crate) async fn sequences_have_no_gaps_with_many_writers(place: &dyn Place) {
    let stores = [place.open().await, place.open().await, place.open().await];
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(put(&*stores[0], record(), State::Ready).await.record.id());
    }
    let mut tasks = JoinSet::new();
    for turn in 0..12 {
        let (store, id) = (stores[turn % 3].clone(), ids[turn % ids.len()]);
        tasks.spawn(async move {
            let mut written = 0;
            while written < 5 {
                let stored = store.get(id).await.unwrap().unwrap();
                let to = if stored.record.state() == State::Paused { State::Active } else { State::Paused };
                written += u32::from(store.update(change(&stored, &[to])).await.is_ok());
            }
        });
    }
    tasks.join_all().await;
    for (id, found) in sequences(&*stores[0]).await {
        assert!(is_gapless(&found) && found.len() == 3 + 4 * 5, "{id}: {found:?}");
    }
}

pub(crate) async fn events_are_read_by_position_subject_and_owner(place: &dyn Place) {
    let store = place.open().await;
    let mut owned = record();
    owned.owner_key = Some("key_a".into());
    let mine = put(&*store, owned, State::Provisioning).await;
    let other = put(&*store, record(), State::Provisioning).await;
    let mine = go(&*store, &mine, &[State::Ready]).await;
    go(&*store, &other, &[State::Ready]).await;
    let read = async |subject: Option<SandboxId>, owner: Option<&str>, after, limit| {
        let filter = EventFilter { subject, owner_key: owner.map(str::to_owned) };
        let found = store.events(&filter, after, Limit::new(limit).unwrap()).await.unwrap();
        found.into_iter().map(|placed| placed.position).collect::<Vec<_>>()
    };
    assert_eq!(read(None, None, 0, 100).await, [1, 2, 3, 4, 5, 6]);
    assert_eq!(read(None, None, 2, 2).await, [3, 4]);
    assert_eq!(read(Some(mine.record.id()), None, 0, 100).await, [1, 2, 5]);
    assert_eq!(read(Some(mine.record.id()), None, 1, 1).await, [2]);
    assert_eq!(read(None, Some("key_a"), 1, 100).await, [2, 5]);
    assert_eq!(read(Some(mine.record.id()), Some("key_a"), 2, 100).await, [5]);
    assert_eq!(read(Some(other.record.id()), Some("key_a"), 0, 100).await, [0; 0]);
    assert_eq!(read(None, None, 6, 100).await, [0; 0]);
}

pub(crate) async fn an_event_is_found_by_its_id(place: &dyn Place) {
    let store = place.open().await;
    assert_eq!(store.last_position().await.unwrap(), 0);
    let stored = put(&*store, record(), State::Ready).await;
    let filter = EventFilter { subject: Some(stored.record.id()), owner_key: None };
    for placed in store.events(&filter, 0, Limit::DEFAULT).await.unwrap() {
        assert_eq!(placed.event.source, SOURCE);
        assert_eq!(placed.event.subject, stored.record.id());
        assert_eq!(store.event_position(placed.event.id).await.unwrap(), Some(placed.position));
    }
    assert_eq!(store.event_position(EventId::generate()).await.unwrap(), None);
    assert_eq!(store.last_position().await.unwrap(), 3);
}
