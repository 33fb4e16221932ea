//! Hosts: registered once, removed only when nothing is on them, with a health that follows the signs.

use sandboxer_core::host::{Host, HostAccess, HostCapacity, HostSign, LOCAL, SshAccess};
use sandboxer_core::{ErrorKind, State};
use serde_json::json;

use super::Place;
use super::fixture::{at, change, go, insert, put, record};

fn host(name: &str) -> Host {
    let access = SshAccess {
        address: "10.0.0.4".into(),
        port: 22,
        user: "ops".into(),
        identity_file: Some("/etc/key".into()),
        host_keys: vec!["ssh-ed25519 AAAA".into()],
    };
    Host {
        name: name.into(),
        access: HostAccess::Ssh(access),
        labels: super::fixture::labels([("pool", "ci")]),
        region: Some("eu".into()),
        capacity: HostCapacity { sandboxes: Some(2), cpu: Some(1.5), ..HostCapacity::default() },
        added_at: at(5),
    }
}

pub(crate) async fn a_host_is_read_back_whole(place: &dyn Place) {
    let store = place.open().await;
    assert!(store.host_list().await.unwrap().is_empty());
    for name in ["b", "a"] {
        let made = store.host_put(&host(name)).await.unwrap();
        assert_eq!((made.host, made.version, made.facts), (host(name), 1, None));
    }
    let again = place.open().await;
    let names: Vec<String> =
        again.host_list().await.unwrap().into_iter().map(|record| record.host.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(again.host_get("a").await.unwrap().unwrap().host, host("a"));
    assert!(again.host_get("c").await.unwrap().is_none());
}

pub(crate) async fn a_name_is_taken_once(place: &dyn Place) {
    let store = place.open().await;
    store.host_put(&host("a")).await.unwrap();
    let error = place.open().await.host_put(&Host { region: None, ..host("a") }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(store.host_get("a").await.unwrap().unwrap().host.region.as_deref(), Some("eu"));
}

pub(crate) async fn a_host_in_use_is_not_removed(place: &dyn Place) {
    let store = place.open().await;
    store.host_put(&host("a")).await.unwrap();
    let mut on_it = record();
    on_it.sandbox.host = "a".into();
    let stored = put(&*store, on_it, State::Ready).await;
    let error = store.host_remove("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains(&stored.record.id().to_string()), "{error:?}");
    go(&*store, &stored, &[State::Destroying, State::Destroyed]).await;
    assert_eq!(store.host_remove("a").await.unwrap().host.name, "a");
    assert!(store.host_list().await.unwrap().is_empty());
    assert_eq!(store.host_remove("a").await.unwrap_err().kind(), ErrorKind::HostNotFound);
}

pub(crate) async fn no_sandbox_is_written_for_an_unknown_host(place: &dyn Place) {
    let store = place.open().await;
    let mut stray = record();
    stray.sandbox.host = "a".into();
    let error = store.insert(insert(stray, State::Provisioning)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostNotFound);
    let stored = put(&*store, record(), State::Provisioning).await;
    let mut moved = change(&stored, &[]);
    moved.record.sandbox.host = "a".into();
    assert_eq!(store.update(moved.clone()).await.unwrap_err().kind(), ErrorKind::HostNotFound);
    store.host_put(&host("a")).await.unwrap();
    assert_eq!(store.update(moved).await.unwrap().record.sandbox.host, "a");
}

pub(crate) async fn health_follows_the_signs(place: &dyn Place) {
    let store = place.open().await;
    store.host_put(&host("a")).await.unwrap();
    let failed = HostSign::Failed { reason: "no route".into() };
    for (at_second, rest) in [(0, 30), (100, 60), (200, 120)] {
        let record = store.host_health("a", &failed, None, at(at_second)).await.unwrap();
        assert_eq!(record.health.cooled_until, Some(at(at_second + rest)));
    }
    let facts = json!({ "cpu": { "count": 4 } });
    let answered = HostSign::Answered { latency_ms: Some(7) };
    store.host_health("a", &answered, Some(&facts), at(300)).await.unwrap();
    store.host_health("a", &answered, None, at(400)).await.unwrap();
    let record = place.open().await.host_get("a").await.unwrap().unwrap();
    assert_eq!((record.health.failures, record.health.cooled_until), (0, None));
    assert_eq!((record.health.latency_ms, record.health.checked_at), (Some(7), Some(at(400))));
    assert_eq!((record.facts, record.version), (Some(facts), 6));
    assert_eq!(record.host, host("a"), "the registration itself stays");
    let error = store.host_health("b", &failed, None, at(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostNotFound);
    // The engine's own machine needs no registration and is never left alone.
    let local = store.host_health(LOCAL, &failed, None, at(0)).await.unwrap();
    assert_eq!((local.health.failures, local.health.cooled_until), (1, None));
}

pub(crate) async fn many_signs_at_once_are_all_counted(place: &dyn Place) {
    let store = place.open().await;
    store.host_put(&host("a")).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let store = place.open().await;
        tasks.spawn(async move {
            let failed = HostSign::Failed { reason: "no".into() };
            store.host_health("a", &failed, None, at(0)).await.unwrap();
        });
    }
    tasks.join_all().await;
    assert_eq!(store.host_get("a").await.unwrap().unwrap().health.failures, 16);
}

pub(crate) async fn loads_count_what_lives(place: &dyn Place) {
    let store = place.open().await;
    store.host_put(&host("a")).await.unwrap();
    for (host, cpu, memory) in [("a", Some(0.5), Some(100)), ("a", Some(1.0), None), (LOCAL, None, Some(7))] {
        let mut new = record();
        new.sandbox.host = host.into();
        (new.spec.resources.cpu, new.spec.resources.memory_mb) = (cpu, memory);
        put(&*store, new, State::Ready).await;
    }
    let gone = put(&*store, record(), State::Ready).await;
    go(&*store, &gone, &[State::Destroying, State::Destroyed]).await;
    let loads = store.host_loads().await.unwrap();
    assert_eq!(loads.len(), 2);
    assert_eq!((loads["a"].sandboxes, loads["a"].cpu, loads["a"].memory_mb), (2, 1.5, 100));
    assert_eq!((loads[LOCAL].sandboxes, loads[LOCAL].memory_mb, loads[LOCAL].disk_mb), (1, 7, 0));
}
