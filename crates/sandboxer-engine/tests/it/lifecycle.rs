//! Create to destroy over a real store: what is written, in which order, and what happens when something fails.

use std::time::Duration;

use sandboxer_core::request::{CreateRequest, ExecRequest};
use sandboxer_core::{Dur, ErrorKind, ExecId, SandboxId, State};
use sandboxer_engine::{Caller, CreateOptions, Engine, Limits};
use sandboxer_store::{EventFilter, Filter};
use sandboxer_testkit::{Workshop, eventually};
use tokio_util::sync::CancellationToken;

fn me() -> Caller {
    Caller::local_admin()
}

async fn create(engine: &Engine) -> sandboxer_core::Sandbox {
    engine.create(&me(), CreateRequest::default(), CreateOptions::default()).await.unwrap().sandbox
}

/// The states that the events of a sandbox tell, in order; their sequence has no gap.
async fn story(workshop: &Workshop, id: SandboxId) -> Vec<String> {
    let filter = EventFilter { subject: Some(id), owner_key: None };
    let events = workshop.store.events(&filter, 0, Default::default()).await.unwrap();
    for (index, placed) in events.iter().enumerate() {
        assert_eq!(placed.event.sequence, index as u64 + 1);
    }
    events
        .iter()
        .map(|placed| placed.event.kind.trim_start_matches("dev.sandboxer.sandbox.").to_owned())
        .collect()
}

#[tokio::test]
async fn a_whole_life() {
    let workshop = Workshop::new().await.unwrap();
    let engine = &workshop.engine;
    let sandbox = create(engine).await;
    assert_eq!(sandbox.state, State::Ready);
    assert_eq!(sandbox.isolation.effective, Some(sandboxer_core::isolation::IsolationLevel::Container));
    let request = ExecRequest::new(sandboxer_core::exec::Command::Shell("true".into()));
    let session =
        engine.exec(&me(), sandbox.sandbox_id, request.to_spec(ExecId::generate(), false).unwrap()).await;
    assert_eq!(session.unwrap().control.wait().await.unwrap().exit_code, 0);
    assert_eq!(engine.get(&me(), sandbox.sandbox_id).await.unwrap().state, State::Active);
    let gone = engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!((gone.state, gone.reason.as_deref()), (State::Destroyed, Some("requested")));
    assert!(gone.cleanup.unwrap().is_clean());
    let again = engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!(again.state, State::Destroyed);
    assert_eq!(workshop.extension.living(), Vec::<String>::new());
    let told = story(&workshop, sandbox.sandbox_id).await;
    assert_eq!(told, ["requested", "provisioning", "ready", "active", "destroying", "destroyed"]);
}

#[tokio::test]
async fn a_failed_create_tells_why_and_leaves_nothing() {
    let workshop = Workshop::new().await.unwrap();
    for case in 0..3 {
        workshop.extension.script(|script| {
            *script = sandboxer_testkit::Script {
                provision_fails: case == 0,
                provision_fails_after_effect: case == 1,
                probe_fails: case == 2,
                ..Default::default()
            };
        });
        let result = workshop.engine.create(&me(), CreateRequest::default(), CreateOptions::default()).await;
        assert!(result.is_err(), "case {case}");
        assert_eq!(workshop.extension.living(), Vec::<String>::new(), "case {case}");
    }
    let all = Filter { all: true, ..Filter::default() };
    let page = workshop.engine.list(&me(), all, None, Default::default()).await.unwrap();
    assert_eq!(page.items.len(), 3);
    for sandbox in page.items {
        assert_eq!(sandbox.state, State::Destroyed);
        assert!(sandbox.failure.is_some(), "the reason stays visible");
        let told = story(&workshop, sandbox.sandbox_id).await;
        assert_eq!(told, ["requested", "provisioning", "failed", "destroying", "destroyed"]);
    }
}

#[tokio::test]
async fn a_cleanup_that_fails_stays_visible_and_is_tried_again() {
    let workshop = Workshop::new().await.unwrap();
    let sandbox = create(&workshop.engine).await;
    workshop.extension.script(|script| script.teardown_leaves = true);
    let error = workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CleanupFailed);
    let seen = workshop.engine.get(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!(seen.state, State::Failed);
    assert_eq!(seen.cleanup.unwrap().left.len(), 1);
    workshop.extension.script(|script| script.teardown_leaves = false);
    workshop.engine.refresh().await.unwrap();
    let seen = workshop.engine.get(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!((seen.state, seen.reason.as_deref()), (State::Destroyed, Some("requested")));
    assert_eq!(workshop.extension.living(), Vec::<String>::new());
}

#[tokio::test]
async fn a_backend_that_is_away_does_not_make_a_destroy_pretend() {
    let workshop = Workshop::new().await.unwrap();
    let sandbox = create(&workshop.engine).await;
    workshop.extension.script(|script| script.teardown_fails = true);
    assert!(workshop.engine.destroy(&me(), sandbox.sandbox_id).await.is_err());
    assert_eq!(workshop.engine.get(&me(), sandbox.sandbox_id).await.unwrap().state, State::Failed);
    workshop.extension.script(|script| script.teardown_fails = false);
    let gone = workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!(gone.state, State::Destroyed);
}

#[tokio::test]
async fn cancelling_a_create_cleans_up() {
    let workshop = Workshop::new().await.unwrap();
    workshop.extension.script(|script| script.provision_takes = Duration::from_secs(60));
    let cancel = CancellationToken::new();
    let options = CreateOptions { cancel: cancel.clone(), ..CreateOptions::default() };
    let engine = workshop.engine.clone();
    let creating = tokio::spawn(async move { engine.create(&me(), CreateRequest::default(), options).await });
    eventually("it is begun", || workshop.extension.most_at_once() > 0).await;
    cancel.cancel();
    assert_eq!(creating.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    let all = Filter { all: true, ..Filter::default() };
    let page = workshop.engine.list(&me(), all, None, Default::default()).await.unwrap();
    assert_eq!((page.items[0].state, page.items[0].reason.as_deref()), (State::Destroyed, Some("cancelled")));
}

#[tokio::test]
async fn a_caller_that_vanishes_cancels_its_create() {
    let workshop = Workshop::new().await.unwrap();
    workshop.extension.script(|script| script.provision_takes = Duration::from_secs(60));
    let engine = workshop.engine.clone();
    let creating = tokio::spawn(async move {
        engine.create(&me(), CreateRequest::default(), CreateOptions::default()).await
    });
    eventually("it is begun", || workshop.extension.most_at_once() > 0).await;
    creating.abort();
    let all = Filter { all: true, ..Filter::default() };
    for _ in 0..200 {
        let page = workshop.engine.list(&me(), all.clone(), None, Default::default()).await.unwrap();
        if page.items[0].state == State::Destroyed {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the abandoned create was not cleaned up");
}

#[tokio::test]
async fn a_destroy_during_the_create_wins() {
    let workshop = Workshop::new().await.unwrap();
    workshop.extension.script(|script| script.provision_takes = Duration::from_millis(300));
    let options = CreateOptions { respond_async: true, ..CreateOptions::default() };
    let created = workshop.engine.create(&me(), CreateRequest::default(), options).await.unwrap();
    assert!(created.pending);
    let gone = workshop.engine.destroy(&me(), created.sandbox.sandbox_id).await.unwrap();
    assert_eq!(gone.state, State::Destroyed);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(workshop.extension.living(), Vec::<String>::new(), "what came later was removed too");
}

#[tokio::test]
async fn creates_are_bounded() {
    let limits = Limits { concurrent_creates: 3, waiting_creates: 5, ..Limits::default() };
    let workshop = Workshop::with(limits, Vec::new()).await.unwrap();
    workshop.extension.script(|script| script.provision_takes = Duration::from_millis(200));
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let engine = workshop.engine.clone();
            tokio::spawn(async move {
                engine.create(&me(), CreateRequest::default(), CreateOptions::default()).await
            })
        })
        .collect();
    let (mut made, mut refused) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => made += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::RateLimited);
                refused += 1;
            }
        }
    }
    assert_eq!((made, refused), (8, 12));
    assert!(workshop.extension.most_at_once() <= 3);
}

#[tokio::test]
async fn twenty_destroys_at_once_give_one_answer() {
    let workshop = Workshop::new().await.unwrap();
    let id = create(&workshop.engine).await.sandbox_id;
    let second = workshop.second_engine();
    let tasks: Vec<_> = (0..20)
        .map(|index| {
            let engine = if index % 2 == 0 { workshop.engine.clone() } else { second.clone() };
            tokio::spawn(async move { engine.destroy(&me(), id).await })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap().state, State::Destroyed);
    }
    assert_eq!(story(&workshop, id).await, ["requested", "provisioning", "ready", "destroying", "destroyed"]);
}

#[tokio::test]
async fn time_ends_a_sandbox_and_more_time_may_be_asked_for() {
    let workshop = Workshop::new().await.unwrap();
    let engine = &workshop.engine;
    let request = CreateRequest { ttl: Some(Dur::from_secs(60)), ..CreateRequest::default() };
    let sandbox = engine.create(&me(), request, CreateOptions::default()).await.unwrap().sandbox;
    let extended = engine.extend_ttl(&me(), sandbox.sandbox_id, Dur::from_secs(120)).await.unwrap();
    assert_eq!(extended.expires_at, Dur::from_secs(120).after(sandbox.created_at));
    let error = engine.extend_ttl(&me(), sandbox.sandbox_id, Dur::from_secs(90 * 86_400)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TtlAboveMax);
    workshop.clock.advance(Dur::from_secs(121));
    assert_eq!(engine.expire(&me(), false).await.unwrap().len(), 1);
    let seen = engine.get(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!((seen.state, seen.reason.as_deref()), (State::Destroyed, Some("ttl")));
    let told = story(&workshop, sandbox.sandbox_id).await;
    assert_eq!(
        told,
        ["requested", "provisioning", "ready", "ttl_extended", "expired", "destroying", "destroyed"]
    );
    assert_eq!(
        engine.extend_ttl(&me(), sandbox.sandbox_id, Dur::from_secs(9)).await.unwrap_err().kind(),
        ErrorKind::IllegalState
    );
}

#[tokio::test]
async fn a_ttl_above_the_maximum_is_refused_before_anything_happens() {
    let workshop = Workshop::new().await.unwrap();
    let request = CreateRequest { ttl: Some(Dur::from_secs(365 * 86_400)), ..CreateRequest::default() };
    let error = workshop.engine.create(&me(), request, CreateOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TtlAboveMax);
    assert!(error.hint().is_some());
    assert_eq!(workshop.store.last_position().await.unwrap(), 0);
}

#[tokio::test]
async fn recreate_gives_a_new_one_like_the_old_one() {
    let workshop = Workshop::new().await.unwrap();
    let request = CreateRequest {
        profile: Some("profile.agent-dev".into()),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        env: [("PLAIN".to_owned(), "1".to_owned())].into(),
        ..CreateRequest::default()
    };
    let old = workshop.engine.create(&me(), request, CreateOptions::default()).await.unwrap().sandbox;
    let new =
        workshop.engine.recreate(&me(), old.sandbox_id, CreateOptions::default()).await.unwrap().sandbox;
    assert_ne!(new.sandbox_id, old.sandbox_id);
    assert_eq!((new.profile, new.labels, new.config_hash), (old.profile, old.labels, old.config_hash));
    assert_eq!(workshop.engine.get(&me(), old.sandbox_id).await.unwrap().state, State::Destroyed);
}
