//! What is stale is found on every host; what is not ours, or not certainly, stays.

use sandboxer_core::host::LOCAL;
use sandboxer_core::{ErrorKind, SandboxId, State};
use sandboxer_engine::{Caller, ReapRequest, StaleReport};

use crate::fixture::{Site, me};

const APPLY: ReapRequest = ReapRequest { apply: true, host: None, unknown: false };

async fn look(site: &Site) -> StaleReport {
    site.engine.inspect_stale(&me(), None).await.unwrap()
}

#[tokio::test]
async fn nothing_is_stale_where_everything_has_its_row() {
    let site = Site::with(&["a", "b"]).await;
    for _ in 0..4 {
        site.create().await.unwrap();
    }
    assert_eq!(look(&site).await, StaleReport::default());
    let reaped = site.engine.reap_stale(&me(), &APPLY).await.unwrap();
    assert_eq!(reaped, StaleReport { applied: true, ..StaleReport::default() });
    assert_eq!(site.fleet.living("a").len() + site.fleet.living("b").len(), 4);
}

#[tokio::test]
async fn remains_of_a_destroyed_sandbox_go_and_foreign_things_stay() {
    let site = Site::with(&["a", "b"]).await;
    let gone = site.create().await.unwrap();
    site.engine.destroy(&me(), gone.sandbox_id).await.unwrap();
    let (ours, stranger) = (gone.sandbox_id.to_string(), SandboxId::generate().to_string());
    for (host, tag) in [("a", &ours), ("b", &ours), ("b", &stranger)] {
        site.fleet.plant(host, tag);
    }
    site.fleet.plant("b", "postgres");
    site.fleet.plant("b", "sbx_not-an-id-of-ours");
    site.fleet.calls();
    let found = look(&site).await;
    let told: Vec<(&str, &str, bool)> =
        found.remains.iter().map(|r| (r.host.as_str(), r.tag.as_str(), r.known)).collect();
    let mut expected =
        vec![("a", ours.as_str(), true), ("b", ours.as_str(), true), ("b", stranger.as_str(), false)];
    expected.sort_by_key(|(host, tag, _)| (*host, *tag));
    assert_eq!(told, expected);
    assert_eq!(found.remains[0].parts, [format!("sandbox {ours}")]);
    assert!(site.fleet.calls().iter().all(|call| call.starts_with("list ")), "a look changes nothing");

    let reaped = site.engine.reap_stale(&me(), &APPLY).await.unwrap();
    assert_eq!(reaped.remains.iter().filter(|remains| remains.removed).count(), 2);
    assert!(site.fleet.living("a").is_empty());
    let left = site.fleet.living("b");
    assert!(left.contains(&stranger) && left.contains(&"postgres".to_owned()), "{left:?}");

    let unknown = ReapRequest { unknown: true, host: Some("b".into()), ..APPLY };
    site.engine.reap_stale(&me(), &unknown).await.unwrap();
    assert_eq!(site.fleet.living("b"), ["postgres", "sbx_not-an-id-of-ours"], "never what is not ours");
}

#[tokio::test]
async fn a_row_with_nothing_behind_it_is_ended() {
    let site = Site::with(&["a", "b"]).await;
    let (lost, lives) = (site.create().await.unwrap(), site.create().await.unwrap());
    site.fleet.lose(&lost.host, &lost.sandbox_id.to_string());
    let found = look(&site).await;
    assert_eq!(found.rows.len(), 1);
    assert_eq!(
        (found.rows[0].sandbox_id, found.rows[0].why.as_str()),
        (lost.sandbox_id, "nothing of it lives")
    );
    let reaped = site.engine.reap_stale(&me(), &APPLY).await.unwrap();
    assert!(reaped.rows[0].ended && !reaped.has_problems());
    let store = &site.store;
    let state = |id| async move { store.get(id).await.unwrap().unwrap().record.state() };
    assert_eq!(state(lost.sandbox_id).await, State::Destroyed);
    assert_eq!(state(lives.sandbox_id).await, State::Ready);
}

#[tokio::test]
async fn what_is_being_made_is_not_stale() {
    let site = Site::with(&["a"]).await;
    let lives = site.create().await.unwrap();
    let mut stored = site.store.get(lives.sandbox_id).await.unwrap().unwrap();
    // Another process is at work on it: it holds the lease, and nothing is known about it but that.
    let lease = sandboxer_store::Lease {
        owner: "elsewhere".into(),
        until: sandboxer_core::Dur::from_secs(30).after(site.engine.now()),
    };
    stored.record.sandbox.host = LOCAL.into();
    let update = sandboxer_store::Update {
        expected_version: stored.version,
        record: stored.record,
        steps: Vec::new(),
        facts: Vec::new(),
        lease: sandboxer_store::LeaseChange::Take(lease),
        books: Default::default(),
    };
    site.store.update(update).await.unwrap();
    assert_eq!(look(&site).await, StaleReport::default(), "on its way from one host to another");
    site.clock.advance(sandboxer_core::Dur::from_secs(31));
    let found = look(&site).await;
    assert_eq!(found.remains[0].why, "its sandbox is ext.fleet on local");
    assert_eq!(found.rows[0].why, "nothing of it lives");
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_named_and_nothing_is_said_about_it() {
    let site = Site::with(&["a", "b"]).await;
    let on_a = site.create().await.unwrap();
    let on_b = site.create().await.unwrap();
    assert_eq!((on_a.host.as_str(), on_b.host.as_str()), ("a", "b"));
    site.fleet.lose("b", &on_b.sandbox_id.to_string());
    site.fleet.script("a", |script| script.list = Some(ErrorKind::Unreachable));
    let found = look(&site).await;
    assert_eq!(found.unanswered.len(), 1);
    assert_eq!((found.unanswered[0].host.as_str(), found.rows.len()), ("a", 1));
    assert_eq!(found.rows[0].sandbox_id, on_b.sandbox_id);
    assert!(site.refusal("a").await.unwrap().contains("left alone"));
}

#[tokio::test]
async fn a_removal_that_fails_is_a_problem() {
    let site = Site::with(&["a"]).await;
    let gone = site.create().await.unwrap();
    site.engine.destroy(&me(), gone.sandbox_id).await.unwrap();
    site.fleet.plant("a", &gone.sandbox_id.to_string());
    site.fleet.script("a", |script| script.teardown = Some(ErrorKind::BackendFailed));
    let reaped = site.engine.reap_stale(&me(), &APPLY).await.unwrap();
    assert!(reaped.has_problems() && !reaped.remains[0].removed);
    assert!(reaped.remains[0].problem.as_ref().unwrap().contains("says no to teardown"));
}

#[tokio::test]
async fn a_start_cleans_this_machine_at_once_and_other_hosts_apart() {
    let site = Site::with(&["a"]).await;
    let gone = site.create().await.unwrap();
    site.engine.destroy(&me(), gone.sandbox_id).await.unwrap();
    let tag = gone.sandbox_id.to_string();
    for host in [LOCAL, "a"] {
        site.fleet.plant(host, &tag);
    }
    site.fleet.calls();
    let second = site.second_engine();
    assert_eq!(second.reconcile().await.unwrap().removed, [&*tag]);
    second.refresh().await.unwrap();
    assert!(site.fleet.calls().iter().all(|call| call.ends_with(LOCAL)), "no other host was contacted");
    assert_eq!(site.fleet.living("a"), [&*tag]);
    assert_eq!(second.reconcile_remote().await.unwrap().removed, [tag]);
    assert!(site.fleet.living("a").is_empty());
}

#[tokio::test]
async fn only_operators_look_and_only_admins_manage() {
    let site = Site::with(&["a"]).await;
    let key = sandboxer_core::KeyId::generate;
    let agent = Caller::with_key(sandboxer_core::Actor::Agt, key());
    let automation = Caller::with_key(sandboxer_core::Actor::Atm, key());
    for denied in [
        site.engine.hosts(&agent).await.map(drop),
        site.engine.inspect_stale(&agent, None).await.map(drop),
        site.engine.reap_stale(&agent, &APPLY).await.map(drop),
        site.engine.host_check(&agent, "a").await.map(drop),
        site.engine.inspect_host(&agent, None).await.map(drop),
        site.engine.host_remove(&automation, "a").await.map(drop),
        site.engine.host_add(&automation, &Default::default()).await.map(drop),
    ] {
        assert_eq!(denied.unwrap_err().kind(), ErrorKind::Denied);
    }
    assert_eq!(site.engine.hosts(&automation).await.unwrap().len(), 2);
}

#[tokio::test]
async fn facts_are_merged_and_the_last_ones_kept() {
    let site = Site::with(&["a"]).await;
    site.fleet.plant("a", "postgres");
    let report = site.engine.inspect_host(&me(), Some("a")).await.unwrap();
    assert_eq!(report.facts["kernel"]["release"], "of a");
    assert_eq!(report.facts["foreign"]["containers"][0], "postgres");
    assert!(report.reachable && report.sandboxes.is_empty());
    let sandbox = site.create().await.unwrap();
    site.fleet.script("a", |script| script.check = Some(ErrorKind::Unreachable));
    let report = site.engine.inspect_host(&me(), Some("a")).await.unwrap();
    assert_eq!(report.facts["kernel"]["release"], "of a", "as it was last seen");
    assert!(!report.reachable && report.problems[0].contains("says no to facts"));
    assert_eq!(report.sandboxes[0].sandbox_id, sandbox.sandbox_id);
    let local = site.engine.inspect_host(&me(), None).await.unwrap();
    assert!(local.facts["engines"]["sandboxer"]["version"].is_string());
    assert!(local.sandboxes.is_empty());
    assert_eq!(site.engine.inspect_host(&me(), Some("z")).await.unwrap_err().kind(), ErrorKind::HostNotFound);
}
