//! What routing remembers: latencies, failures, who may try, and what was let through.

use sandboxer_core::route::{Backend, BreakerState, ExtensionLimits, Slots};
use sandboxer_core::{Class, Dur, State};
use sandboxer_store::RouteFailure;

use super::Place;
use super::fixture::{at, go, put, record};

fn backend(extension: &str) -> Backend {
    Backend { extension: extension.into(), host: "local".into() }
}

fn failure(class: Class) -> RouteFailure<'static> {
    RouteFailure { class, reason: "it failed", retry_after: None }
}

pub(crate) async fn latencies_are_learned_by_profile(place: &dyn Place) {
    let store = place.open().await;
    for (profile, ms) in [("a", 100), ("a", 300), ("b", 900)] {
        store.route_ready(&backend("ext.x"), profile, Dur::from_millis(ms), at(5)).await.unwrap();
    }
    let past = place.open().await.route_past("a").await.unwrap();
    assert_eq!((past.latency.len(), past.breakers.len()), (1, 0));
    let (of, digest) = &past.latency[0];
    assert_eq!((of, digest.samples, digest.p50), (&backend("ext.x"), 2, Dur::from_millis(100)));
    assert_eq!((digest.p95, digest.updated_at), (Dur::from_millis(300), at(5)));
    assert!(store.route_past("c").await.unwrap().latency.is_empty());
    store.route_forget(at(6)).await.unwrap();
    assert!(store.route_past("a").await.unwrap().latency.is_empty());
}

pub(crate) async fn many_samples_at_once_are_all_counted(place: &dyn Place) {
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..24 {
        let store = place.open().await;
        tasks.spawn(async move {
            store.route_ready(&backend("ext.x"), "a", Dur::from_millis(index), at(5)).await.unwrap();
        });
    }
    tasks.join_all().await;
    assert_eq!(place.open().await.route_past("a").await.unwrap().latency[0].1.samples, 24);
}

pub(crate) async fn failures_are_kept_until_a_success(place: &dyn Place) {
    let (store, x) = (place.open().await, backend("ext.x"));
    let made = store.route_failed(&x, &failure(Class::Payment), at(5)).await.unwrap();
    store.route_failed(&x, &failure(Class::Backend), at(5)).await.unwrap();
    assert_eq!(made.state(at(5)), BreakerState::Open);
    let past = place.open().await.route_past("a").await.unwrap();
    assert_eq!(past.breakers.len(), 2, "one for a class");
    assert!(past.breakers.contains(&(x.clone(), made)));
    store.route_ready(&x, "a", Dur::from_secs(2), at(6)).await.unwrap();
    assert_eq!(store.route_past("a").await.unwrap().breakers.len(), 2, "that one began before they failed");
    store.route_ready(&x, "a", Dur::from_secs(1), at(6)).await.unwrap();
    assert!(store.route_past("a").await.unwrap().breakers.is_empty());
}

pub(crate) async fn one_at_a_time_may_try(place: &dyn Place) {
    let (store, x) = (place.open().await, backend("ext.x"));
    assert!(store.route_probe(&x, at(9_000), at(5)).await.unwrap(), "nothing is known against it");
    let open = store.route_failed(&x, &failure(Class::Quota), at(5)).await.unwrap().until.unwrap();
    assert!(!store.route_probe(&x, at(9_000), at(6)).await.unwrap(), "it is open");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (store, x) = (place.open().await, x.clone());
        tasks
            .spawn(async move { store.route_probe(&x, Dur::from_secs(60).after(open), open).await.unwrap() });
    }
    assert_eq!(tasks.join_all().await.iter().filter(|may| **may).count(), 1);
    let later = Dur::from_secs(60).after(open);
    assert!(
        store.route_probe(&x, Dur::from_secs(60).after(later), later).await.unwrap(),
        "a try ends by itself"
    );
    assert!(!store.route_probe(&x, Dur::from_secs(60).after(later), later).await.unwrap());
    store.route_unprobe(&x).await.unwrap();
    assert!(store.route_probe(&x, Dur::from_secs(60).after(later), later).await.unwrap(), "or is given back");
    let again = store.route_failed(&x, &failure(Class::Quota), later).await.unwrap();
    assert_eq!((again.failures, again.probe_until), (2, None));
}

pub(crate) async fn limits_hold_for_all_together(place: &dyn Place) {
    let store = place.open().await;
    let limits = ExtensionLimits { max_sandboxes: Some(3), ..ExtensionLimits::default() };
    let mut rows = Vec::new();
    for _ in 0..8 {
        rows.push(put(&*store, record(), State::Ready).await);
    }
    let extension = rows[0].record.sandbox.extension.clone();
    let mut tasks = tokio::task::JoinSet::new();
    for row in &rows {
        let (store, id) = (place.open().await, row.record.id());
        let (extension, limits) = (extension.clone(), limits.clone());
        tasks
            .spawn(async move { (id, store.route_slot_take(&extension, id, &limits, at(5)).await.unwrap()) });
    }
    let taken = tasks.join_all().await;
    let inside: Vec<_> = taken.iter().filter(|(_, refused)| refused.is_none()).map(|(id, _)| *id).collect();
    assert_eq!(inside.len(), 3);
    let slots = Slots { living: 3, creating: 0, recent: 3, since: Some(at(5)) };
    assert_eq!(store.route_slots(&extension, &limits, at(5)).await.unwrap(), slots);
    assert_eq!(
        store.route_slot_take(&extension, inside[0], &limits, at(5)).await.unwrap(),
        None,
        "twice is once"
    );
    let gone = rows.iter().find(|row| row.record.id() == inside[0]).unwrap();
    go(&*store, gone, &[State::Destroying, State::Destroyed]).await;
    assert_eq!(
        store.route_slots(&extension, &limits, at(99)).await.unwrap().living,
        2,
        "an end frees its place"
    );
    store.route_slots_adopt(&extension).await.unwrap();
    assert_eq!(
        store.route_slots(&extension, &limits, at(99)).await.unwrap().living,
        7,
        "the others live as well"
    );
    assert_eq!(
        store.route_slots(&extension, &limits, at(3_600)).await.unwrap().living,
        0,
        "nobody has looked, and their time is over"
    );
    let made = put(&*store, record(), State::Provisioning).await;
    store.route_slot_take(&extension, made.record.id(), &limits, at(3_600)).await.unwrap();
    let creating = async |second| store.route_slots(&extension, &limits, at(second)).await.unwrap().creating;
    assert_eq!((creating(30).await, creating(31).await), (1, 0), "its maker has said nothing for too long");
}
