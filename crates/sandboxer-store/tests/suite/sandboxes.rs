//! Insert, update and the engine's reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sandboxer_core::event::NewEvent;
use sandboxer_core::{ErrorKind, Retry, SandboxId, State};
use sandboxer_store::{EventFilter, Filter, Inserted, LeaseChange};
use serde_json::json;
use tokio::task::JoinSet;

use super::Place;
use super::fixture::*;

pub(crate) async fn a_new_sandbox_is_read_back_whole(place: &dyn Place) {
    let store = place.open().await;
    let mut record = record();
    record.sandbox.labels = labels([("team", "a"), ("zone", "ü \"quoted\"")]);
    record.reuse_key = Some("agent/7".into());
    record.owner_key = Some("key_1".into());
    let new = put(&*store, record, State::Provisioning).await;
    assert_eq!(new.version, 1);
    assert_eq!(new.lease, Some(lease("me")));
    assert_eq!(store.get(new.record.id()).await.unwrap(), Some(new.clone()));
    assert_eq!(place.open().await.get(new.record.id()).await.unwrap(), Some(new));
    store.ping().await.unwrap();
}

pub(crate) async fn an_unknown_sandbox_is_absent(place: &dyn Place) {
    assert_eq!(place.open().await.get(SandboxId::generate()).await.unwrap(), None);
}

pub(crate) async fn an_update_is_read_back_whole(place: &dyn Place) {
    let store = place.open().await;
    let new = put(&*store, record(), State::Provisioning).await;
    let mut update = change(&new, &[State::Ready, State::Active]);
    update.record.handle = Some(handle());
    update.record.sandbox.ready_at = Some(at(1));
    update.record.sandbox.expires_at = at(7_200);
    update.facts = vec![NewEvent::fact("sandbox.ttl_extended", at(2), json!({"by": "1h"}))];
    let changed = store.update(update.clone()).await.unwrap();
    assert_eq!(changed.version, 2);
    assert_eq!(changed.record, update.record);
    assert_eq!(store.get(new.record.id()).await.unwrap(), Some(changed));
    let filter = EventFilter { subject: Some(new.record.id()), owner_key: None };
    let kinds: Vec<_> = store
        .events(&filter, 0, Default::default())
        .await
        .unwrap()
        .into_iter()
        .map(|e| e.event.kind)
        .collect();
    let names = ["requested", "provisioning", "ready", "active", "ttl_extended"];
    assert_eq!(kinds, names.map(|name| format!("dev.sandboxer.sandbox.{name}")));
}

/// Whoever reads often may have a quicker way to do so; what another process wrote is seen all the same.
pub(crate) async fn a_read_is_never_older_than_the_last_write(place: &dyn Place) {
    let (writer, reader) = (place.open().await, place.open().await);
    let mut newest = put(&*writer, record(), State::Ready).await;
    let id = newest.record.id();
    for round in 0..40 {
        let mut update = change(&newest, &[]);
        update.record.handle = (round % 2 == 0).then(handle);
        update.lease = LeaseChange::Take(lease(&format!("process {round}")));
        newest = writer.update(update).await.unwrap();
        assert_eq!(reader.get(id).await.unwrap().as_ref(), Some(&newest));
        assert_eq!(writer.get(id).await.unwrap().as_ref(), Some(&newest));
        assert_eq!(reader.get(SandboxId::generate()).await.unwrap(), None);
    }
}

pub(crate) async fn a_stale_version_is_a_temporary_conflict(place: &dyn Place) {
    let store = place.open().await;
    let old = put(&*store, record(), State::Ready).await;
    let new = go(&*store, &old, &[State::Active]).await;
    let error = store.update(change(&old, &[State::Destroying])).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Conflict, Retry::Temporary));
    assert_eq!(store.get(old.record.id()).await.unwrap(), Some(new));
}

pub(crate) async fn an_update_of_nothing_is_not_found(place: &dyn Place) {
    let store = place.open().await;
    let mut ghost = put(&*store, record(), State::Ready).await;
    ghost.record.sandbox.sandbox_id = SandboxId::generate();
    let error = store.update(change(&ghost, &[State::Active])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SandboxNotFound);
}

pub(crate) async fn a_first_step_other_than_requested_is_refused(place: &dyn Place) {
    let store = place.open().await;
    let mut first = insert(record(), State::Provisioning);
    first.steps.remove(0);
    assert_eq!(store.insert(first).await.unwrap_err().kind(), ErrorKind::IllegalState);
    let mut none = insert(record(), State::Requested);
    none.steps.clear();
    assert_eq!(store.insert(none).await.unwrap_err().kind(), ErrorKind::Internal);
    let mut jump = insert(record(), State::Ready);
    jump.steps.remove(1);
    assert_eq!(store.insert(jump).await.unwrap_err().kind(), ErrorKind::IllegalState);
    assert!(listed(&*store, &Filter { all: true, ..Filter::default() }).await.is_empty());
    assert_eq!(store.last_position().await.unwrap(), 0);
}

pub(crate) async fn an_edge_that_does_not_exist_is_refused(place: &dyn Place) {
    let store = place.open().await;
    for from in State::ALL {
        let stored = put(&*store, record(), from).await;
        for to in State::ALL {
            if from.can_become(to) {
                continue;
            }
            let error = store.update(change(&stored, &[to])).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IllegalState, "{from} → {to}");
        }
        assert_eq!(store.get(stored.record.id()).await.unwrap(), Some(stored));
    }
}

pub(crate) async fn a_record_that_differs_from_its_steps_is_a_defect(place: &dyn Place) {
    let store = place.open().await;
    let mut wrong = insert(record(), State::Ready);
    wrong.record.sandbox.state = State::Active;
    assert_eq!(store.insert(wrong).await.unwrap_err().kind(), ErrorKind::Internal);
    let stored = put(&*store, record(), State::Ready).await;
    let mut silent = change(&stored, &[]);
    silent.record.sandbox.state = State::Active;
    assert_eq!(store.update(silent).await.unwrap_err().kind(), ErrorKind::Internal);
    let mut other = change(&stored, &[State::Active]);
    other.record.sandbox.state = State::Failed;
    assert_eq!(store.update(other).await.unwrap_err().kind(), ErrorKind::Internal);
}

pub(crate) async fn a_refused_update_leaves_nothing_behind(place: &dyn Place) {
    let store = place.open().await;
    let stored = put(&*store, record(), State::Ready).await;
    let mut update = change(&stored, &[State::Active, State::Provisioning]);
    update.record.sandbox.labels = labels([("team", "a")]);
    store.update(update).await.unwrap_err();
    // The second of these events has the id of the first: the row and the first event were already written.
    let mut twice = change(&stored, &[State::Active, State::Failed]);
    twice.steps[1].event.id = twice.steps[0].event.id;
    assert_eq!(store.update(twice).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(store.get(stored.record.id()).await.unwrap(), Some(stored.clone()));
    let by_label = Filter { labels: labels([("team", "a")]), ..Filter::default() };
    assert!(listed(&*store, &by_label).await.is_empty());
    assert_eq!(store.last_position().await.unwrap(), 3);
    go(&*store, &stored, &[State::Active]).await;
}

pub(crate) async fn the_same_id_twice_is_a_conflict(place: &dyn Place) {
    let store = place.open().await;
    let stored = put(&*store, record(), State::Requested).await;
    let error = store.insert(insert(stored.record.clone(), State::Requested)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

fn shared(config: &str) -> sandboxer_core::sandbox::SandboxRecord {
    let mut record = record();
    record.reuse_key = Some("shared/a".into());
    record.sandbox.config_hash = config.into();
    record
}

pub(crate) async fn a_shared_sandbox_is_found_again(place: &dyn Place) {
    let store = place.open().await;
    let first = put(&*store, shared("one"), State::Ready).await;
    let again = store.insert(insert(shared("one"), State::Requested)).await.unwrap();
    assert_eq!(again, Inserted::Reusable(first.clone()));
    put(&*store, shared("two"), State::Ready).await;
    put(&*store, record(), State::Ready).await;
    assert_eq!(store.living().await.unwrap().len(), 3, "a reuse writes nothing");
}

pub(crate) async fn a_sandbox_that_ends_is_not_reused(place: &dyn Place) {
    let store = place.open().await;
    for end in [State::Expired, State::Failed, State::Destroying, State::Destroyed] {
        put(&*store, shared("one"), end).await;
    }
    for state in [State::Requested, State::Provisioning, State::Ready, State::Active, State::Paused] {
        let stored = put(&*store, shared("one"), state).await;
        let again = store.insert(insert(shared("one"), State::Requested)).await.unwrap();
        assert_eq!(again, Inserted::Reusable(stored.clone()));
        go(&*store, &stored, if state == State::Requested { &[State::Destroying] } else { &[State::Failed] })
            .await;
    }
}

pub(crate) async fn fifty_creates_at_once_make_one_sandbox(place: &dyn Place) {
    let mut tasks = JoinSet::new();
    let stores = [place.open().await, place.open().await, place.open().await];
    for turn in 0..50 {
        let store = stores[turn % stores.len()].clone();
        tasks.spawn(async move { store.insert(insert(shared("one"), State::Requested)).await.unwrap() });
    }
    let all = tasks.join_all().await;
    let new: Vec<_> =
        all.iter().filter_map(|one| if let Inserted::New(new) = one { Some(new) } else { None }).collect();
    assert_eq!(new.len(), 1);
    let reused = all.iter().filter(|one| **one == Inserted::Reusable(new[0].clone())).count();
    assert_eq!(reused, 49);
}

pub(crate) async fn of_many_updates_at_once_one_wins(place: &dyn Place) {
    let stores = [place.open().await, place.open().await];
    let stored = put(&*stores[0], record(), State::Ready).await;
    let mut tasks = JoinSet::new();
    for turn in 0..20 {
        let (store, update) = (stores[turn % 2].clone(), change(&stored, &[State::Active]));
        tasks.spawn(async move { store.update(update).await.map_err(|error| error.kind()) });
    }
    let all = tasks.join_all().await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1);
    assert_eq!(all.iter().filter(|one| **one == Err(ErrorKind::Conflict)).count(), 19);
}

pub(crate) async fn sharing_lists_the_living_newest_first(place: &dyn Place) {
    let store = place.open().await;
    let old = put(&*store, shared("one"), State::Ready).await;
    let new = put(&*store, shared("two"), State::Destroying).await;
    put(&*store, shared("three"), State::Destroyed).await;
    put(&*store, record(), State::Ready).await;
    assert_eq!(store.sharing("shared/a").await.unwrap(), [new, old]);
    assert!(store.sharing("shared/b").await.unwrap().is_empty());
}

pub(crate) async fn living_lists_oldest_first_without_the_destroyed(place: &dyn Place) {
    let store = place.open().await;
    let mut expected = Vec::new();
    for state in State::ALL {
        let stored = put(&*store, record(), state).await;
        if state.is_living() {
            expected.push(stored);
        }
    }
    assert_eq!(store.living().await.unwrap(), expected);
}

pub(crate) async fn overdue_lists_what_can_expire(place: &dyn Place) {
    let store = place.open().await;
    let due = |seconds| {
        let mut record = record();
        record.sandbox.expires_at = at(seconds);
        record
    };
    let second = put(&*store, due(20), State::Ready).await;
    let first = put(&*store, due(10), State::Active).await;
    let third = put(&*store, due(30), State::Paused).await;
    for state in [State::Requested, State::Provisioning, State::Expired, State::Failed, State::Destroyed] {
        put(&*store, due(5), state).await;
    }
    assert!(store.overdue(at(9)).await.unwrap().is_empty());
    assert_eq!(ids(&store.overdue(at(20)).await.unwrap()), ids(&[first.clone(), second.clone()]));
    let mut extend = change(&first, &[]);
    extend.record.sandbox.expires_at = at(100);
    store.update(extend).await.unwrap();
    assert_eq!(store.overdue(at(40)).await.unwrap(), [second, third]);
}

pub(crate) async fn a_lease_is_taken_kept_renewed_and_released(place: &dyn Place) {
    let store = place.open().await;
    let stored = put(&*store, record(), State::Ready).await;
    let id = stored.record.id();
    assert!(store.renew_lease(id, "me", at(60)).await.unwrap());
    assert!(!store.renew_lease(id, "you", at(90)).await.unwrap());
    assert!(!store.renew_lease(SandboxId::generate(), "me", at(90)).await.unwrap());
    let renewed = store.get(id).await.unwrap().unwrap();
    assert_eq!(renewed.lease.as_ref().unwrap().until, at(60));
    assert_eq!(renewed.version, stored.version, "a renewal does not stand in the way of a write");
    let kept = go(&*store, &stored, &[State::Active]).await;
    assert_eq!(kept.lease, renewed.lease);
    let mut take = change(&kept, &[]);
    take.lease = LeaseChange::Take(lease("you"));
    let taken = store.update(take).await.unwrap();
    assert_eq!(taken.lease, Some(lease("you")));
    assert!(!store.renew_lease(id, "me", at(90)).await.unwrap());
    let mut release = change(&taken, &[]);
    release.lease = LeaseChange::Release;
    assert_eq!(store.update(release).await.unwrap().lease, None);
    assert_eq!(store.get(id).await.unwrap().unwrap().lease, None);
    assert!(!store.renew_lease(id, "you", at(90)).await.unwrap());
}

/// Drops writes at every stage of their way. What became of one is open until a later write has come through: its
/// commit may already have been on the way.
pub(crate) async fn a_caller_that_goes_away_leaves_nothing_half(place: &dyn Place) {
    let (store, neighbour) = (place.open().await, place.open().await);
    // Somebody else who writes all the time, so that some of ours must wait for their turn.
    let over = Arc::new(AtomicBool::new(false));
    let writes = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            while !over.load(Ordering::Relaxed) {
                runtime.block_on(put(&*neighbour, record(), State::Destroyed));
            }
        }
    });
    let mut tried = Vec::new();
    for turns in 0..300 {
        let new = insert(record(), State::Ready);
        let id = new.record.id();
        let patience = async {
            for _ in 0..turns * turns {
                tokio::task::yield_now().await;
            }
        };
        let acknowledged = tokio::select! {
            biased;
            outcome = store.insert(new) => outcome.map(|_| true).unwrap(),
            () = patience => false,
        };
        tried.push((id, acknowledged));
    }
    over.store(true, Ordering::Relaxed);
    writes.join().unwrap();
    put(&*store, record(), State::Ready).await;
    let mut there = 0;
    for (id, acknowledged) in tried {
        let stored = store.get(id).await.unwrap().is_some();
        assert!(stored || !acknowledged, "what was acknowledged is there");
        let filter = EventFilter { subject: Some(id), owner_key: None };
        let events = store.events(&filter, 0, Default::default()).await.unwrap().len();
        assert_eq!(events, if stored { 3 } else { 0 });
        there += usize::from(stored);
    }
    assert_eq!(store.living().await.unwrap().len(), there + 1);
    assert!((1..300).contains(&there), "{there} of 300 came through: the test drops too many or too few");
}
