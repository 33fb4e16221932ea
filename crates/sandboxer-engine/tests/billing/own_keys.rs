//! A workspace that pays its provider itself.

use sandboxer_core::exec::ExecSpec;
use sandboxer_core::extension::Extension as _;
use sandboxer_core::ledger::Seat;
use sandboxer_core::page::Limit;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::{Dur, ErrorKind, ExecId, Money, State};
use sandboxer_engine::CreateOptions;
use sandboxer_engine::vault::Vault;
use sandboxer_store::{EventFilter, OwnKey};
use sandboxer_testkit::Workshop;

use crate::fixture::{account, audit, create, me, money, pay_in, workshop};

/// The name of the account, and after the dot what is secret of it.
const SECRET: &str = "the-workspace-s-own.key";
/// Another key of the same account, and one of another.
const RENEWED: &str = "the-workspace-s-own.next";
const FOREIGN: &str = "somebody-else-s.key";

fn vault(workshop: &Workshop) -> Vault {
    Vault::new(workshop.folder.path().join("secrets"))
}

fn store_key(workshop: &Workshop, key: &str) {
    vault(workshop).put("provider-1", key).unwrap();
}

/// Does nothing.
fn command() -> ExecSpec {
    ExecSpec {
        exec_id: ExecId::generate(),
        argv: vec!["true".into()],
        cwd: None,
        env: Default::default(),
        user: None,
        timeout: None,
        tty: None,
        stdin: false,
    }
}

pub(crate) async fn with_own_key(fee_basis_points: u32) -> Workshop {
    let workshop = workshop().await;
    workshop.engine.keep_secrets_in(workshop.folder.path());
    store_key(&workshop, SECRET);
    let key = OwnKey {
        organisation: "default".into(),
        workspace: "default".into(),
        extension: "ext.native".into(),
        secret: "provider-1".into(),
        fee_basis_points,
        created_at: workshop.engine.now(),
    };
    workshop.store.own_key_put(&key).await.unwrap();
    workshop
}

#[tokio::test]
async fn without_a_fee_no_credits_are_needed_and_both_figures_are_told() {
    let workshop = with_own_key(0).await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    assert_eq!((sandbox.quote.amount, sandbox.quote.fee), (Money::ZERO, Money::ZERO));
    assert_eq!(sandbox.quote.upstream, money("1.000000001"));
    assert_eq!(workshop.extension.credentials(), [Some(SECRET.to_owned())]);
    workshop.clock.advance(Dur::from_secs(10));
    let cost = workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap().cost.unwrap();
    assert_eq!((cost.charged, cost.upstream), (Money::ZERO, money("0.1")));
    audit(&workshop).await;
}

#[tokio::test]
async fn the_fee_is_what_is_held_and_charged() {
    let workshop = with_own_key(1_000).await;
    assert_eq!(create(&workshop.engine, 100).await.unwrap_err().kind(), ErrorKind::InsufficientCredits);
    pay_in(&workshop, "10").await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    assert_eq!(sandbox.quote.amount, money("0.1"));
    workshop.clock.advance(Dur::from_secs(10));
    workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!(account(&workshop).await.balance, money("9.99"));
    assert_eq!(workshop.store.account("fees").await.unwrap().unwrap().balance, money("0.01"));
    assert!(
        workshop
            .store
            .account("provider:ext.native")
            .await
            .unwrap()
            .is_none_or(|it| it.balance == Money::ZERO)
    );
    audit(&workshop).await;
}

#[tokio::test]
async fn a_key_that_is_gone_is_never_replaced_by_the_platforms() {
    let workshop = with_own_key(0).await;
    vault(&workshop).remove("provider-1").unwrap();
    let error = create(&workshop.engine, 100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert_eq!(workshop.extension.provisioned(), 0);
    audit(&workshop).await;
}

/// What the engine says aloud while this goes on.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_key_is_nowhere_in_the_store_the_events_and_the_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let _guard = tracing::subscriber::set_default(subscriber.with_writer(move || writer.clone()).finish());
    let workshop = with_own_key(0).await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    workshop.extension.script(|script| script.teardown_fails = true);
    workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap_err();
    workshop.extension.script(|script| script.teardown_fails = false);
    workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    let (all, most) = (EventFilter::default(), Limit::new(Limit::MAX).unwrap());
    let events = workshop.store.events(&all, 0, most).await.unwrap();
    assert!(!events.is_empty() && !format!("{events:?}").contains(SECRET));
    tracing::error!("said to be found");
    let said = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(said.contains("said to be found") && !said.contains(SECRET), "{said}");
    for entry in std::fs::read_dir(workshop.folder.path()).unwrap().flatten() {
        if entry.file_type().unwrap().is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(SECRET), "{:?}", entry.path());
        }
    }
}

#[tokio::test]
async fn a_life_in_the_workspaces_account_is_reached_with_its_key() {
    let workshop = with_own_key(0).await;
    let id = create(&workshop.engine, 100).await.unwrap().sandbox_id;
    // The backend has it for this key alone.
    assert_eq!(workshop.extension.list("local", "").await.unwrap(), []);
    let engine = workshop.second_engine();
    engine.keep_secrets_in(workshop.folder.path());
    assert_eq!(engine.get(&me(), id).await.unwrap().state, State::Ready);
    assert!(engine.inspect_sandbox(&me(), id).await.unwrap().backend.unwrap().alive);
    engine.exec(&me(), id, command()).await.unwrap();
    engine.extend_ttl(&me(), id, Dur::from_secs(200)).await.unwrap();
    engine.pause(&me(), id).await.unwrap();
    engine.resume(&me(), id).await.unwrap();
    let snapshot = engine.snapshot(&me(), id, None).await.unwrap();
    assert_eq!(snapshot.own_key_of, Some(Seat::default()));
    assert_eq!(engine.reconcile().await.unwrap().adopted, [id]);
    engine.snapshot_delete(&me(), snapshot.snapshot_id).await.unwrap();
    let ended = engine.destroy(&me(), id).await.unwrap();
    assert_eq!((ended.state, ended.cleanup.unwrap().removed), (State::Destroyed, vec![id.to_string()]));
    assert!(workshop.extension.living().is_empty() && workshop.extension.snapshots().is_empty());
    audit(&workshop).await;
}

#[tokio::test]
async fn what_a_dead_process_made_in_the_workspaces_account_is_found_and_removed() {
    let workshop = with_own_key(0).await;
    workshop.extension.script(|script| script.probe_takes = std::time::Duration::from_secs(3_600));
    let engine = workshop.engine.clone();
    let making = tokio::spawn(async move { create(&engine, 900).await });
    while workshop.extension.living().is_empty() {
        tokio::task::yield_now().await;
    }
    // Its process does not come back: the row never got a handle, and the lease runs out.
    workshop.clock.advance(Dur::from_secs(300));
    let [tag] = workshop.extension.living().try_into().unwrap();
    let stored = workshop.store.get(tag.parse().unwrap()).await.unwrap().unwrap();
    assert!(stored.record.handle.is_none());
    let next = workshop.second_engine();
    next.keep_secrets_in(workshop.folder.path());
    let report = next.reconcile().await.unwrap();
    assert_eq!(report.finished, [tag.parse().unwrap()], "{report:?}");
    assert!(workshop.extension.living().is_empty());
    audit(&workshop).await;
    making.abort();
}

#[tokio::test]
async fn remains_in_the_workspaces_account_are_taken_down_with_the_key_that_found_them() {
    let workshop = with_own_key(0).await;
    let id = create(&workshop.engine, 100).await.unwrap().sandbox_id;
    workshop.engine.destroy(&me(), id).await.unwrap();
    // The answer to a create that came late: there again after its row was done with.
    workshop.extension.plant_for(&id.to_string(), SECRET);
    let stale = workshop.engine.inspect_stale(&me(), None).await.unwrap();
    assert_eq!(stale.remains.len(), 1, "{stale:?}");
    assert_eq!(stale.remains[0].own_key_of, Some(Seat::default()));
    assert_eq!(workshop.engine.reconcile().await.unwrap().removed, [id.to_string()]);
    assert!(workshop.extension.living().is_empty());
}

#[tokio::test]
async fn without_its_key_a_teardown_fails_visibly_and_is_tried_again() {
    let workshop = with_own_key(0).await;
    let id = create(&workshop.engine, 100).await.unwrap().sandbox_id;
    vault(&workshop).remove("provider-1").unwrap();
    let error = workshop.engine.destroy(&me(), id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CleanupFailed, "{error:?}");
    let seen = workshop.store.get(id).await.unwrap().unwrap().record.sandbox;
    assert_eq!(seen.state, State::Failed);
    assert!(format!("{:?}", seen.failure).contains("is not there any more"), "{seen:?}");
    assert_eq!(workshop.extension.living(), [id.to_string()]);
    store_key(&workshop, RENEWED);
    assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Destroyed);
    assert!(workshop.extension.living().is_empty());
}

#[tokio::test]
async fn a_key_that_was_replaced_holds_at_once_and_one_of_another_account_ends_nothing() {
    let workshop = with_own_key(0).await;
    let id = create(&workshop.engine, 100).await.unwrap().sandbox_id;
    store_key(&workshop, RENEWED);
    assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Ready);
    workshop.engine.pause(&me(), id).await.unwrap();
    store_key(&workshop, FOREIGN);
    let error = workshop.engine.destroy(&me(), id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CleanupFailed, "{error:?}");
    assert!(error.chain().join(": ").contains("another one than the sandbox was made with"), "{error:?}");
    assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Failed);
    // At its deadline the provider has ended it by itself.
    workshop.clock.advance(Dur::from_secs(101));
    assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Destroyed);
}

#[tokio::test]
async fn a_key_of_another_account_ends_nothing_and_charges_what_was_used() {
    let workshop = with_own_key(1_000).await;
    pay_in(&workshop, "10").await;
    let id = create(&workshop.engine, 100).await.unwrap().sandbox_id;
    workshop.clock.advance(Dur::from_secs(10));
    store_key(&workshop, FOREIGN);
    for _ in 0..2 {
        assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Ready, "nobody knows better");
    }
    assert!(workshop.engine.exec(&me(), id, command()).await.is_err());
    workshop.engine.reconcile().await.unwrap();
    store_key(&workshop, RENEWED);
    assert!(workshop.engine.get(&me(), id).await.unwrap().state.is_usable());
    // Asked to end with a key that finds nothing: charged until then, and taken down once the key is back.
    store_key(&workshop, FOREIGN);
    assert_eq!(workshop.engine.destroy(&me(), id).await.unwrap_err().kind(), ErrorKind::CleanupFailed);
    workshop.clock.advance(Dur::from_secs(5));
    store_key(&workshop, SECRET);
    let ended = workshop.engine.destroy(&me(), id).await.unwrap();
    assert_eq!((ended.state, ended.cost.unwrap().upstream), (State::Destroyed, money("0.1")));
    audit(&workshop).await;
}

#[tokio::test]
async fn a_key_that_is_needed_is_not_removed() {
    let workshop = with_own_key(0).await;
    let id = create(&workshop.engine, 100).await.unwrap().sandbox_id;
    let remove = async || workshop.engine.provider_key_remove(&me(), "default", "ext.native").await;
    let refusal = remove().await.unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::Conflict, "{refusal:?}");
    assert!(refusal.to_string().contains(&id.to_string()), "{refusal}");
    let snapshot = workshop.engine.snapshot(&me(), id, None).await.unwrap().snapshot_id;
    workshop.engine.destroy(&me(), id).await.unwrap();
    assert!(remove().await.unwrap_err().to_string().contains(&snapshot.to_string()));
    workshop.engine.snapshot_delete(&me(), snapshot).await.unwrap();
    remove().await.unwrap();
    assert_eq!(vault(&workshop).get("provider-1").unwrap().map(drop), None);
}

#[tokio::test]
async fn a_bound_is_for_both_parts_also_when_it_is_made_longer() {
    let workshop = with_own_key(0).await;
    let request = CreateRequest {
        ttl: Some(Dur::from_secs(100)),
        max_cost: Some(money("1.5")),
        ..CreateRequest::default()
    };
    let made = workshop.engine.create(&me(), request, CreateOptions::default()).await.unwrap().sandbox;
    workshop.engine.extend_ttl(&me(), made.sandbox_id, Dur::from_secs(140)).await.unwrap();
    let error = workshop.engine.extend_ttl(&me(), made.sandbox_id, Dur::from_secs(200)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
}
