//! A host that fails is cleaned, left alone, and the next one is taken; a bad request fails where it is.

use sandboxer_core::host::HostCapacity;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::{Dur, ErrorKind, State};

use crate::fixture::{Site, me};

#[tokio::test]
async fn a_host_that_does_not_answer_is_skipped_and_left_alone() {
    let mut site = Site::with(&["a", "b"]).await;
    site.shut("a");
    site.fleet.script("a", |script| {
        (script.provision, script.teardown) = (Some(ErrorKind::Unreachable), Some(ErrorKind::Unreachable));
    });
    let sandbox = site.create().await.unwrap();
    assert_eq!((sandbox.state, sandbox.host.as_str()), (State::Ready, "b"));
    let attempt = &sandbox.route.attempts[0];
    assert_eq!((attempt.host.as_str(), attempt.code.as_str()), ("a", "unreachable"));
    assert_eq!(site.fleet.calls(), ["provision a", "provision b"], "nobody was there to be cleaned");
    assert_eq!(site.story(&sandbox).await, ["requested", "provisioning", "rerouted", "ready"]);
    let refusal = site.refusal("a").await.unwrap();
    assert!(refusal.contains("left alone until") && refusal.contains("says no"), "{refusal}");
    let second = site.create().await.unwrap();
    assert_eq!(second.host, "b");
    assert!(second.route.attempts.is_empty());
    assert_eq!(site.fleet.calls(), ["provision b"], "it was not even asked");
    // The rest ends by itself.
    site.fleet.script("a", |script| *script = Default::default());
    site.clock.advance(Dur::from_secs(31));
    assert_eq!(site.create().await.unwrap().host, "a");
}

#[tokio::test]
async fn what_was_half_made_is_removed_before_the_next_host_is_taken() {
    let site = Site::with(&["a", "b"]).await;
    for kind in [ErrorKind::Timeout, ErrorKind::NoSpace, ErrorKind::BackendFailed, ErrorKind::Unreachable] {
        site.fleet.script("a", |script| (script.provision, script.after_effect) = (Some(kind), true));
        let sandbox = site.create().await.unwrap();
        assert_eq!(sandbox.host, "b", "{kind:?}");
        // What timed out is looked up first, and taken over if it answers now.
        let looked = kind == ErrorKind::Timeout;
        let between: &[&str] = if looked { &["list a", "provision a"] } else { &[] };
        let expected: Vec<&str> =
            ["provision a"].iter().chain(between).chain(&["teardown a", "provision b"]).copied().collect();
        assert_eq!(site.fleet.calls(), expected);
        assert!(site.fleet.living("a").is_empty());
        site.clock.advance(Dur::from_secs(3_600));
        site.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
        site.fleet.calls();
    }
}

#[tokio::test]
async fn a_host_that_cannot_be_cleaned_keeps_its_row() {
    let site = Site::with(&["a", "b"]).await;
    site.fleet.script("a", |script| {
        (script.provision, script.after_effect) = (Some(ErrorKind::Timeout), true);
        script.teardown = Some(ErrorKind::Unreachable);
    });
    assert_eq!(site.create().await.unwrap_err().kind(), ErrorKind::Timeout);
    let row = site.only_row().await;
    assert_eq!((row.state, row.host.as_str()), (State::Failed, "a"), "it stays where something may be");
    assert!(row.failure.unwrap().message.contains("says no to teardown"));
    assert!(site.fleet.living("b").is_empty());
    let error = site.engine.host_remove(&me(), "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains(&row.sandbox_id.to_string()), "{error:?}");
    // It comes back, and a server finishes the work.
    site.fleet.script("a", |script| *script = Default::default());
    site.engine.reconcile_remote().await.unwrap();
    assert!(site.fleet.living("a").is_empty());
    assert_eq!(site.only_row().await.state, State::Destroyed);
    site.engine.host_remove(&me(), "a").await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_wrong_everywhere_fails_at_once() {
    let site = Site::with(&["a", "b"]).await;
    for kind in
        [ErrorKind::InvalidInput, ErrorKind::ImageNotFound, ErrorKind::BuildFailed, ErrorKind::Refused]
    {
        site.fleet.script("a", |script| script.provision = Some(kind));
        assert_eq!(site.create().await.unwrap_err().kind(), kind);
        assert!(!site.fleet.calls().contains(&"provision b".to_owned()), "{kind:?}");
    }
    assert_eq!(site.refusal("a").await, None, "and the host is not to blame");
}

#[tokio::test]
async fn when_all_fail_every_attempt_is_on_record() {
    let mut site = Site::with(&["a", "b", "c"]).await;
    for host in ["a", "b", "c"] {
        site.shut(host);
        site.fleet.script(host, |script| {
            (script.provision, script.teardown) =
                (Some(ErrorKind::Unreachable), Some(ErrorKind::Unreachable));
        });
    }
    assert_eq!(site.create().await.unwrap_err().kind(), ErrorKind::NoBackend);
    let row = site.only_row().await;
    assert_eq!(row.state, State::Destroyed, "nothing was made anywhere, so nothing is left to clean");
    let tried: Vec<&str> = row.route.attempts.iter().map(|attempt| attempt.host.as_str()).collect();
    assert_eq!(tried, ["a", "b", "c"], "the profile's fallback comes last");
    let error = site.create().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend);
    assert!(error.to_string().contains("left alone until"), "{error:?}");
}

#[tokio::test]
async fn a_refused_key_is_never_an_effect() {
    let site = Site::with(&["a", "b"]).await;
    site.fleet.script("a", |script| {
        (script.provision, script.teardown) =
            (Some(ErrorKind::HostKeyRefused), Some(ErrorKind::HostKeyRefused));
    });
    assert_eq!(site.create().await.unwrap().host, "b");
    assert_eq!(site.fleet.calls(), ["provision a", "provision b"]);
}

#[tokio::test]
async fn load_spreads_and_capacity_holds() {
    let mut site = Site::with(&[]).await;
    let capacity = |sandboxes| HostCapacity { sandboxes: Some(sandboxes), ..HostCapacity::default() };
    site.add("a", capacity(2)).await;
    site.add("b", capacity(1)).await;
    let mut hosts = Vec::new();
    for _ in 0..3 {
        hosts.push(site.create().await.unwrap().host);
    }
    assert_eq!(hosts, ["a", "b", "a"], "the emptiest first");
    let error = site.create().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend);
    assert!(error.to_string().contains("full: 2 of 2 sandboxes"), "{error:?}");
    let views = site.engine.hosts(&me()).await.unwrap();
    let loads: Vec<(&str, u32)> =
        views.iter().map(|view| (view.name.as_str(), view.load.sandboxes)).collect();
    assert_eq!(loads, [("local", 0), ("a", 2), ("b", 1)]);
    assert_eq!(views[1].load.memory_mb, 200);
}

#[tokio::test]
async fn a_host_can_be_asked_for_by_name_alone() {
    let site = Site::with(&["a", "elsewhere"]).await;
    let on = |host: &str| CreateRequest { host: Some(host.to_owned()), ..CreateRequest::default() };
    for host in ["elsewhere", "local"] {
        assert_eq!(site.create_as(on(host)).await.unwrap().host, host, "whatever the profile prefers");
    }
    let error = site.create_as(on("elsewere")).await.unwrap_err();
    assert_eq!((error.kind(), error.hint()), (ErrorKind::HostNotFound, Some("did you mean `elsewhere`?")));
    // It is the only offer, so that nobody else is tried.
    site.fleet.script("elsewhere", |script| script.provision = Some(ErrorKind::NoSpace));
    assert_eq!(site.create_as(on("elsewhere")).await.unwrap_err().kind(), ErrorKind::NoSpace);
}

#[tokio::test]
async fn unregistered_hosts_of_a_profile_are_named() {
    let site = Site::with(&["b"]).await;
    assert_eq!(site.create().await.unwrap().host, "b");
    assert!(site.refusal("a").await.unwrap().contains("no such host"));
    let nobody = Site::with(&[]).await;
    assert_eq!(nobody.create().await.unwrap().host, "local", "any host, when none of the named is there");
}

#[tokio::test]
async fn creates_at_once_while_a_host_fails_all_find_a_place() {
    let site = Site::with(&["a", "b"]).await;
    site.fleet
        .script("a", |script| (script.provision, script.after_effect) = (Some(ErrorKind::Timeout), true));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let engine = site.engine.clone();
        tasks.spawn(async move {
            let request = CreateRequest { profile: Some("profile.fleet".into()), ..CreateRequest::default() };
            engine.create(&me(), request, Default::default()).await.unwrap().sandbox.host
        });
    }
    assert!(tasks.join_all().await.iter().all(|host| host == "b"));
    assert!(site.fleet.living("a").is_empty());
    assert_eq!(site.fleet.living("b").len(), 20);
}

/// A runtime that is dropped in the middle runs no line of its tasks any more, as a killed process does.
#[test]
fn a_process_that_dies_on_the_second_host_leaves_nothing_on_either() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let site = std::sync::Arc::new(first.block_on(Site::with(&["a", "b"])));
    site.fleet
        .script("a", |script| (script.provision, script.after_effect) = (Some(ErrorKind::Timeout), true));
    site.fleet.script("b", |script| script.hangs = true);
    let dying = site.clone();
    first.spawn(async move { dying.create().await });
    while site.fleet.living("b").is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    first.shutdown_timeout(std::time::Duration::from_secs(5));
    assert_eq!(site.fleet.living("b").len(), 1);
    let second = runtime();
    second.block_on(async {
        let engine = site.reborn().await;
        site.clock.advance(Dur::from_secs(31));
        engine.reconcile_remote().await.unwrap();
        let filter = sandboxer_store::Filter { all: true, ..Default::default() };
        let rows = engine.list(&me(), filter, None, Default::default()).await.unwrap().items;
        assert_eq!((rows[0].state, rows[0].host.as_str()), (State::Destroyed, "b"));
        assert_eq!(rows[0].reason.as_deref(), Some("interrupted"));
    });
    assert!(site.fleet.living("a").is_empty() && site.fleet.living("b").is_empty());
}
