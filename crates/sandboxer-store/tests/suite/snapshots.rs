//! Snapshots: the row before the effect, its events, listings, and facts that change nothing.

use sandboxer_core::event::NewEvent;
use sandboxer_core::page::Limit;
use sandboxer_core::snapshot::{Snapshot, SnapshotRecord, Taken};
use sandboxer_core::{ErrorKind, SandboxId, SnapshotId, State};
use sandboxer_store::{EventFilter, SnapshotFilter, Store, Stored, StoredSnapshot};
use serde_json::json;

use super::Place;
use super::fixture::{at, go, lease, put, record};

fn planned(of: &Stored, owner_key: Option<&str>) -> SnapshotRecord {
    SnapshotRecord {
        snapshot: Snapshot {
            snapshot_id: SnapshotId::generate(),
            sandbox_id: of.record.id(),
            profile: of.record.sandbox.profile.clone(),
            extension: of.record.sandbox.extension.clone(),
            host: "local".into(),
            name: Some("before".into()),
            created_at: at(5),
            size_bytes: None,
            own_key_of: None,
        },
        spec: of.record.spec.clone(),
        taken: None,
        owner_key: owner_key.map(str::to_owned),
    }
}

fn taken(id: SnapshotId) -> Taken {
    Taken { snapshot_id: id, size_bytes: Some(4096), data: json!({ "image": "x" }) }
}

fn fact(name: &str) -> NewEvent {
    NewEvent::fact(name, at(6), json!({}))
}

async fn take(store: &dyn Store, of: &Stored, owner_key: Option<&str>) -> StoredSnapshot {
    let stored = store.snapshot_insert(planned(of, owner_key), false, lease("me")).await.unwrap();
    let done = taken(stored.record.snapshot.snapshot_id);
    store.snapshot_taken(&stored, done, false, fact("snapshot.created")).await.unwrap()
}

async fn kinds(store: &dyn Store, subject: SandboxId) -> Vec<(u64, String)> {
    let filter = EventFilter { subject: Some(subject), owner_key: None };
    let events = store.events(&filter, 0, Limit::DEFAULT).await.unwrap();
    events.into_iter().map(|placed| (placed.event.sequence, placed.event.kind)).collect()
}

async fn listed(store: &dyn Store, filter: &SnapshotFilter) -> Vec<SnapshotId> {
    let (mut out, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.snapshot_list(filter, cursor.as_deref(), Limit::new(2).unwrap()).await.unwrap();
        out.extend(page.items.iter().map(|snapshot| snapshot.snapshot_id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return out;
        }
    }
}

pub(crate) async fn a_snapshot_is_planned_taken_and_removed_with_its_events(place: &dyn Place) {
    let store = place.open().await;
    let sandbox = put(&*store, record(), State::Ready).await;
    let intent = store.snapshot_insert(planned(&sandbox, Some("key_1")), false, lease("me")).await.unwrap();
    let id = intent.record.snapshot.snapshot_id;
    assert_eq!(store.snapshot_get(id).await.unwrap(), Some(intent.clone()));
    assert_eq!(store.snapshots_unsettled().await.unwrap(), std::slice::from_ref(&intent));
    assert_eq!(listed(&*store, &SnapshotFilter::default()).await, [], "nothing is there yet");

    let done = store.snapshot_taken(&intent, taken(id), false, fact("snapshot.created")).await.unwrap();
    assert_eq!((done.record.snapshot.size_bytes, &done.lease), (Some(4096), &None));
    assert_eq!(place.open().await.snapshot_get(id).await.unwrap(), Some(done.clone()));
    assert_eq!(store.snapshots_unsettled().await.unwrap(), []);
    assert_eq!(listed(&*store, &SnapshotFilter::default()).await, [id]);

    store.snapshot_remove(&done, Some(fact("snapshot.deleted"))).await.unwrap();
    assert_eq!(store.snapshot_get(id).await.unwrap(), None);
    let told = kinds(&*store, sandbox.record.id()).await;
    let last: Vec<_> = told.iter().skip(3).map(|(sequence, kind)| (*sequence, kind.as_str())).collect();
    assert_eq!(last, [(4, "dev.sandboxer.snapshot.created"), (5, "dev.sandboxer.snapshot.deleted")]);
}

pub(crate) async fn a_doomed_one_is_unsettled_until_it_goes(place: &dyn Place) {
    let store = place.open().await;
    let sandbox = put(&*store, record(), State::Ready).await;
    let made = take(&*store, &sandbox, None).await;
    let doomed = store.snapshot_claim(&made, true, Some(lease("me"))).await.unwrap();
    assert_eq!(store.snapshots_unsettled().await.unwrap(), std::slice::from_ref(&doomed));
    assert_eq!(listed(&*store, &SnapshotFilter::default()).await.len(), 1, "it is still there");
    let kept = store.snapshot_claim(&doomed, false, None).await.unwrap();
    assert!(!kept.doomed && kept.lease.is_none());
    assert_eq!(store.snapshots_unsettled().await.unwrap(), []);
    // One that is only for a fork keeps its lease when it is taken.
    let intent = store.snapshot_insert(planned(&sandbox, None), true, lease("me")).await.unwrap();
    let done = taken(intent.record.snapshot.snapshot_id);
    let fork = store.snapshot_taken(&intent, done, true, fact("snapshot.created")).await.unwrap();
    assert!(fork.doomed && fork.lease == Some(lease("me")));
    assert_eq!(store.snapshots_unsettled().await.unwrap(), [fork]);
}

pub(crate) async fn somebody_elses_change_is_a_conflict(place: &dyn Place) {
    let store = place.open().await;
    let sandbox = put(&*store, record(), State::Ready).await;
    let made = take(&*store, &sandbox, None).await;
    let claimed = store.snapshot_claim(&made, true, Some(lease("them"))).await.unwrap();
    for refused in [
        store.snapshot_claim(&made, true, None).await.unwrap_err(),
        store.snapshot_remove(&made, None).await.unwrap_err(),
        store
            .snapshot_taken(&made, taken(made.record.snapshot.snapshot_id), false, fact("x"))
            .await
            .unwrap_err(),
        store.snapshot_insert(made.record.clone(), false, lease("me")).await.unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused:?}");
    }
    store.snapshot_remove(&claimed, None).await.unwrap();
    let gone = store.snapshot_remove(&claimed, None).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::SnapshotNotFound);
    let mut stranger = made.record;
    stranger.snapshot.sandbox_id = SandboxId::generate();
    let orphan = store.snapshot_insert(stranger, false, lease("me")).await.unwrap_err();
    assert_eq!(orphan.kind(), ErrorKind::SandboxNotFound);
}

pub(crate) async fn pages_are_newest_first_and_filtered(place: &dyn Place) {
    let store = place.open().await;
    let (one, other) =
        (put(&*store, record(), State::Ready).await, put(&*store, record(), State::Ready).await);
    let mut ids = Vec::new();
    for (of, owner) in
        [(&one, Some("key_1")), (&other, None), (&one, None), (&one, Some("key_1")), (&other, Some("key_2"))]
    {
        ids.push(take(&*store, of, owner).await.record.snapshot.snapshot_id);
    }
    let newest = |places: &[usize]| places.iter().map(|place| ids[*place]).collect::<Vec<_>>();
    let filter = |sandbox: Option<&Stored>, owner: Option<&str>| SnapshotFilter {
        sandbox: sandbox.map(|stored| stored.record.id()),
        owner_key: owner.map(str::to_owned),
    };
    assert_eq!(listed(&*store, &filter(None, None)).await, newest(&[4, 3, 2, 1, 0]));
    assert_eq!(listed(&*store, &filter(Some(&one), None)).await, newest(&[3, 2, 0]));
    assert_eq!(listed(&*store, &filter(None, Some("key_1"))).await, newest(&[3, 0]));
    assert_eq!(listed(&*store, &filter(Some(&other), Some("key_1"))).await, []);
    let foreign = store.snapshot_list(&filter(None, None), Some("p1nonsense"), Limit::DEFAULT).await;
    assert_eq!(foreign.unwrap_err().kind(), ErrorKind::InvalidInput);
}

pub(crate) async fn a_sandbox_with_snapshots_is_not_forgotten(place: &dyn Place) {
    let store = place.open().await;
    let sandbox = put(&*store, record(), State::Ready).await;
    let made = take(&*store, &sandbox, None).await;
    go(&*store, &sandbox, &[State::Destroying, State::Destroyed]).await;
    for sink in super::fixture::SINKS {
        loop {
            let claimed = store.outbox_claim(sink, "me", at(50), at(60), 10).await.unwrap();
            if claimed.is_empty() {
                break;
            }
            for delivery in claimed {
                store.outbox_done(delivery.id).await.unwrap();
            }
        }
    }
    assert_eq!(store.prune(at(10_000)).await.unwrap(), 0);
    store.snapshot_remove(&made, None).await.unwrap();
    assert_eq!(store.prune(at(10_000)).await.unwrap(), 1);
}

pub(crate) async fn facts_leave_the_version_alone(place: &dyn Place) {
    let store = place.open().await;
    let sandbox = put(&*store, record(), State::Provisioning).await;
    store.facts(sandbox.record.id(), vec![fact("sandbox.progress"), fact("sandbox.progress")]).await.unwrap();
    // Whoever read before still writes.
    go(&*store, &sandbox, &[State::Ready]).await;
    let sequences: Vec<u64> =
        kinds(&*store, sandbox.record.id()).await.into_iter().map(|(sequence, _)| sequence).collect();
    assert_eq!(sequences, [1, 2, 3, 4, 5]);
    let stranger = store.facts(SandboxId::generate(), vec![fact("x")]).await.unwrap_err();
    assert_eq!(stranger.kind(), ErrorKind::SandboxNotFound);
}
