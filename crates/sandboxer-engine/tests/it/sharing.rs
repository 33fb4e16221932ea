//! Reuse by scope, drift, idempotency and who may see what.

use sandboxer_core::actor::{Actor, Consumer};
use sandboxer_core::profile::Scope;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::{ErrorKind, State};
use sandboxer_engine::{Caller, CreateOptions, Engine};
use sandboxer_store::Filter;
use sandboxer_testkit::Workshop;

fn me() -> Caller {
    Caller::local_admin()
}

fn request(scope: Scope, session: &str) -> CreateRequest {
    CreateRequest {
        profile: Some("profile.agent-dev".into()),
        scope: Some(scope),
        consumer: Consumer {
            actor: Actor::Agt,
            harness: Some("glas-harness".into()),
            session_id: Some(session.into()),
            ..Consumer::default()
        },
        ..CreateRequest::default()
    }
}

async fn create(engine: &Engine, request: CreateRequest) -> sandboxer_core::Sandbox {
    engine.create(&me(), request, CreateOptions::default()).await.unwrap().sandbox
}

#[tokio::test]
async fn scope_decides_who_shares() {
    let workshop = Workshop::new().await.unwrap();
    let engine = &workshop.engine;
    let one = create(engine, request(Scope::Session, "s1")).await;
    let two = create(engine, request(Scope::Session, "s1")).await;
    assert_ne!(one.sandbox_id, two.sandbox_id, "sessions never share");
    let one = create(engine, request(Scope::Agent, "s1")).await;
    let two = create(engine, request(Scope::Agent, "s2")).await;
    assert_eq!((two.sandbox_id, one.reused, two.reused), (one.sandbox_id, false, true));
    let mut other = request(Scope::Agent, "s1");
    other.consumer.harness = Some("another".into());
    assert_ne!(
        create(engine, other.clone()).await.sandbox_id,
        one.sandbox_id,
        "another agent does not share"
    );
    let shared = create(engine, request(Scope::Shared, "s1")).await;
    other.scope = Some(Scope::Shared);
    assert_eq!(create(engine, other).await.sandbox_id, shared.sandbox_id);
}

#[tokio::test]
async fn any_drift_makes_a_new_one_and_says_what_differs() {
    let workshop = Workshop::new().await.unwrap();
    let engine = &workshop.engine;
    let first = create(engine, request(Scope::Agent, "s")).await;
    let mut changed = request(Scope::Agent, "s");
    changed.env.insert("MODE".into(), "fast".into());
    let second = create(engine, changed.clone()).await;
    assert_ne!(second.sandbox_id, first.sandbox_id);
    let drift = second.drift.unwrap();
    assert_eq!((drift.previous, drift.changed), (first.sandbox_id, vec!["variables".to_owned()]));
    assert!(create(engine, changed).await.reused, "the new configuration is shared in turn");
    assert!(create(engine, request(Scope::Agent, "s")).await.reused, "and so is the old one");
}

#[tokio::test]
async fn a_shared_sandbox_that_died_is_replaced() {
    let workshop = Workshop::new().await.unwrap();
    let first = create(&workshop.engine, request(Scope::Agent, "s")).await;
    workshop.extension.lose(&first.sandbox_id.to_string());
    let second = create(&workshop.engine, request(Scope::Agent, "s")).await;
    assert_ne!(second.sandbox_id, first.sandbox_id);
    assert!(!second.reused);
    let gone = workshop.engine.get(&me(), first.sandbox_id).await.unwrap();
    assert_eq!((gone.state, gone.reason.as_deref()), (State::Destroyed, Some("lost")));
}

#[tokio::test]
async fn fifty_creates_at_once_make_one_shared_sandbox() {
    let workshop = Workshop::new().await.unwrap();
    workshop.extension.script(|script| script.provision_takes = std::time::Duration::from_millis(50));
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let engine = workshop.engine.clone();
            tokio::spawn(async move { create(&engine, request(Scope::Shared, "s")).await })
        })
        .collect();
    let mut fresh = 0;
    for task in tasks {
        let sandbox = task.await.unwrap();
        assert_eq!(sandbox.state, State::Ready);
        fresh += u32::from(!sandbox.reused);
    }
    assert_eq!((fresh, workshop.extension.provisioned()), (1, 1));
}

#[tokio::test]
async fn the_same_key_and_body_give_the_same_sandbox() {
    let workshop = Workshop::new().await.unwrap();
    workshop.extension.script(|script| script.provision_takes = std::time::Duration::from_millis(50));
    let options = || CreateOptions { idempotency_key: Some("k-1".into()), ..CreateOptions::default() };
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let engine = workshop.engine.clone();
            tokio::spawn(async move { engine.create(&me(), request(Scope::Session, "s"), options()).await })
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for task in tasks {
        ids.insert(task.await.unwrap().unwrap().sandbox.sandbox_id);
    }
    assert_eq!((ids.len(), workshop.extension.provisioned()), (1, 1));
    let other = workshop.engine.create(&me(), request(Scope::Session, "other"), options()).await;
    assert_eq!(other.unwrap_err().kind(), ErrorKind::IdempotencyMismatch);
}

#[tokio::test]
async fn a_failure_is_replayed_as_the_same_failure() {
    let workshop = Workshop::new().await.unwrap();
    workshop.extension.script(|script| script.provision_fails = true);
    let options = || CreateOptions { idempotency_key: Some("k-2".into()), ..CreateOptions::default() };
    let first = workshop.engine.create(&me(), request(Scope::Session, "s"), options()).await.unwrap_err();
    workshop.extension.script(|script| script.provision_fails = false);
    let second = workshop.engine.create(&me(), request(Scope::Session, "s"), options()).await.unwrap_err();
    // The causes are in the text of what was kept.
    assert_eq!((first.kind(), first.chain().join(": ")), (second.kind(), second.chain().join(": ")));
    let explained = |error: &sandboxer_core::Error| {
        let mut told = error.context().to_vec();
        told.retain(|(key, _)| ["offers", "attempts"].contains(key));
        told
    };
    assert_eq!((explained(&first).len(), explained(&first)), (2, explained(&second)));
    assert_eq!(workshop.extension.provisioned(), 0);
}

#[tokio::test]
async fn a_key_whose_request_was_never_answered_may_be_used_again() {
    let workshop = Workshop::new().await.unwrap();
    workshop.extension.script(|script| script.provision_takes = std::time::Duration::from_secs(60));
    let options = || CreateOptions { idempotency_key: Some("k-3".into()), ..CreateOptions::default() };
    let engine = workshop.engine.clone();
    let first =
        tokio::spawn(async move { engine.create(&me(), request(Scope::Session, "s"), options()).await });
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    first.abort();
    workshop.extension.script(|script| script.provision_takes = std::time::Duration::ZERO);
    let second =
        workshop.engine.create(&me(), request(Scope::Session, "s"), options()).await.unwrap().sandbox;
    assert_eq!(second.state, State::Ready);
    let third = workshop.engine.create(&me(), request(Scope::Session, "s"), options()).await.unwrap().sandbox;
    assert_eq!(third.sandbox_id, second.sandbox_id);
    assert_eq!(workshop.extension.living(), [second.sandbox_id.to_string()]);
}

#[tokio::test]
async fn agents_see_and_end_only_what_is_theirs() {
    let workshop = Workshop::new().await.unwrap();
    let engine = &workshop.engine;
    let mut callers = Vec::new();
    for name in ["one", "two"] {
        let key = engine.key_create(&me(), name, Actor::Agt, None, Default::default()).await.unwrap();
        callers.push(engine.authenticate(&key.secret).await.unwrap());
    }
    let mine = engine
        .create(&callers[0], request(Scope::Shared, "s"), CreateOptions::default())
        .await
        .unwrap()
        .sandbox;
    let theirs = engine
        .create(&callers[1], request(Scope::Shared, "s"), CreateOptions::default())
        .await
        .unwrap()
        .sandbox;
    assert_ne!(mine.sandbox_id, theirs.sandbox_id, "keys never share a sandbox");
    let page = engine.list(&callers[0], Filter::default(), None, Default::default()).await.unwrap();
    assert_eq!(page.items.iter().map(|s| s.sandbox_id).collect::<Vec<_>>(), [mine.sandbox_id]);
    for result in [
        engine.get(&callers[0], theirs.sandbox_id).await.map(drop),
        engine.destroy(&callers[0], theirs.sandbox_id).await.map(drop),
        engine.events(&callers[0], Some(theirs.sandbox_id), 0, Default::default()).await.map(drop),
        engine.recreate(&callers[0], theirs.sandbox_id, CreateOptions::default()).await.map(drop),
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::SandboxNotFound);
    }
    let events = engine.events(&callers[0], None, 0, Default::default()).await.unwrap();
    assert!(events.iter().all(|placed| placed.event.subject == mine.sandbox_id));
    assert_eq!(engine.key_list(&callers[0]).await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_revoked_key_is_refused() {
    let workshop = Workshop::new().await.unwrap();
    let engine = &workshop.engine;
    let key = engine.key_create(&me(), "n", Actor::Adm, None, Default::default()).await.unwrap();
    assert!(engine.has_keys().await.unwrap());
    assert!(engine.authenticate(&key.secret).await.is_ok());
    engine.key_revoke(&me(), key.record.key_id).await.unwrap();
    assert_eq!(engine.authenticate(&key.secret).await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    assert!(!engine.has_keys().await.unwrap());
    assert!(!key.record.hash.contains(&key.secret[4..]));
}
