//! After a crash: what lives is adopted, what is half done is finished, what is lost is said.

use sandboxer_core::event::NewEvent;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::{Dur, SandboxId, State};
use sandboxer_engine::{Caller, CreateOptions};
use sandboxer_store::{Books, Insert, Inserted, Lease, LeaseChange, Step, Stored, Update};
use sandboxer_testkit::Workshop;

fn me() -> Caller {
    Caller::local_admin()
}

/// A process that certainly is no more: this machine and boot, a pid with another start time.
fn dead_owner() -> String {
    let me = sandboxer_engine::owner::Owner::of_this_process();
    let (rest, _) = me.as_str().rsplit_once('/').unwrap();
    format!("{rest}/1")
}

/// A copy of a ready sandbox's record under a new id, left in `provisioning` by the given owner.
async fn interrupted(workshop: &Workshop, owner: &str, until: jiff::Timestamp) -> Stored {
    let made =
        workshop.engine.create(&me(), CreateRequest::default(), CreateOptions::default()).await.unwrap();
    let mut record = workshop.store.get(made.sandbox.sandbox_id).await.unwrap().unwrap().record;
    record.sandbox.sandbox_id = SandboxId::generate();
    record.sandbox.state = State::Provisioning;
    record.handle = None;
    let now = record.sandbox.created_at;
    let step = |to| Step { to, event: NewEvent::transition(to, now, serde_json::json!({})) };
    let insert = Insert {
        record,
        steps: vec![step(State::Requested), step(State::Provisioning)],
        lease: Lease { owner: owner.to_owned(), until },
        idempotency: None,
        facts: Vec::new(),
        books: Books::default(),
    };
    let Inserted::New(stored) = workshop.store.insert(insert).await.unwrap() else { panic!("not new") };
    stored
}

#[tokio::test]
async fn a_create_whose_maker_died_is_removed_and_the_living_are_adopted() {
    let workshop = Workshop::new().await.unwrap();
    let later = Dur::from_secs(3_600).after(jiff::Timestamp::from_second(1_800_000_000).unwrap());
    let stored = interrupted(&workshop, &dead_owner(), later).await;
    let id = stored.record.id();
    workshop.extension.plant(&id.to_string());
    let report = workshop.engine.reconcile().await.unwrap();
    assert_eq!((report.finished, report.adopted.len()), (vec![id], 1));
    let gone = workshop.engine.get(&me(), id).await.unwrap();
    assert_eq!((gone.state, gone.reason.as_deref()), (State::Destroyed, Some("interrupted")));
    assert!(!workshop.extension.living().contains(&id.to_string()));
    assert_eq!(workshop.extension.living().len(), 1, "the other one lives on");
}

#[tokio::test]
async fn what_somebody_else_is_making_is_left_alone_until_the_lease_ends() {
    let workshop = Workshop::new().await.unwrap();
    let until = Dur::from_secs(30).after(jiff::Timestamp::from_second(1_800_000_000).unwrap());
    let stored = interrupted(&workshop, "another-machine/pid:[1]/77/1", until).await;
    let id = stored.record.id();
    workshop.engine.reconcile().await.unwrap();
    assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Provisioning);
    workshop.clock.advance(Dur::from_secs(31));
    workshop.engine.reconcile().await.unwrap();
    assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Destroyed);
}

#[tokio::test]
async fn a_destroy_that_broke_off_is_finished() {
    let workshop = Workshop::new().await.unwrap();
    let made =
        workshop.engine.create(&me(), CreateRequest::default(), CreateOptions::default()).await.unwrap();
    let stored = workshop.store.get(made.sandbox.sandbox_id).await.unwrap().unwrap();
    let mut record = stored.record.clone();
    record.sandbox.state = State::Destroying;
    let now = record.sandbox.created_at;
    let event = NewEvent::transition(State::Destroying, now, serde_json::json!({}));
    let lease = Lease { owner: dead_owner(), until: Dur::from_secs(3_600).after(now) };
    let update = Update {
        record,
        expected_version: stored.version,
        steps: vec![Step { to: State::Destroying, event }],
        facts: Vec::new(),
        lease: LeaseChange::Take(lease),
        books: Books::default(),
    };
    workshop.store.update(update).await.unwrap();
    let report = workshop.engine.reconcile().await.unwrap();
    assert_eq!(report.finished, [made.sandbox.sandbox_id]);
    assert_eq!(workshop.extension.living(), Vec::<String>::new());
}

#[tokio::test]
async fn the_lost_and_the_overdue_are_told_apart() {
    let workshop = Workshop::new().await.unwrap();
    let mut ids = Vec::new();
    for ttl in [60, 600] {
        let request = CreateRequest { ttl: Some(Dur::from_secs(ttl)), ..CreateRequest::default() };
        let made = workshop.engine.create(&me(), request, CreateOptions::default()).await.unwrap();
        workshop.extension.lose(&made.sandbox.sandbox_id.to_string());
        ids.push(made.sandbox.sandbox_id);
    }
    workshop.clock.advance(Dur::from_secs(61));
    let report = workshop.engine.reconcile().await.unwrap();
    assert_eq!((report.expired, report.lost), (vec![ids[0]], vec![ids[1]]));
    let lost = workshop.engine.get(&me(), ids[1]).await.unwrap();
    assert_eq!(lost.failure.unwrap().code, "backend_failed");
}

#[tokio::test]
async fn what_has_no_row_is_removed_and_what_is_not_ours_stays() {
    let workshop = Workshop::new().await.unwrap();
    let orphan = SandboxId::generate().to_string();
    workshop.extension.plant(&orphan);
    workshop.extension.plant("sbx_not-an-id-of-ours");
    workshop.extension.plant("somebody-elses");
    let report = workshop.engine.reconcile().await.unwrap();
    assert_eq!(report.removed, [orphan]);
    assert_eq!(workshop.extension.living(), ["sbx_not-an-id-of-ours", "somebody-elses"]);
}

#[tokio::test]
async fn an_exec_in_a_dead_sandbox_tells_what_became_of_it() {
    let workshop = Workshop::new().await.unwrap();
    let made =
        workshop.engine.create(&me(), CreateRequest::default(), CreateOptions::default()).await.unwrap();
    let id = made.sandbox.sandbox_id;
    workshop.extension.lose(&id.to_string());
    let request =
        sandboxer_core::request::ExecRequest::new(sandboxer_core::exec::Command::Shell("true".into()));
    let spec = request.to_spec(sandboxer_core::ExecId::generate(), false).unwrap();
    let error = workshop.engine.exec(&me(), id, spec).await.err().unwrap();
    assert_eq!(error.kind(), sandboxer_core::ErrorKind::IllegalState);
    assert!(error.to_string().contains("lost"), "{error}");
    assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Destroyed);
}

/// One wait for a backend that hangs, whatever it has: neither a listing nor the start of a server waits for each.
#[tokio::test]
async fn a_backend_that_hangs_holds_up_a_look_once() {
    let workshop = Workshop::new().await.unwrap();
    for _ in 0..5 {
        workshop.engine.create(&me(), CreateRequest::default(), CreateOptions::default()).await.unwrap();
    }
    workshop.extension.script(|script| script.status_takes = std::time::Duration::from_secs(86_400));
    let begin = tokio::time::Instant::now();
    let report = workshop.engine.reconcile().await.unwrap();
    assert_eq!(report.problems.len(), 5, "{report:?}");
    assert!(report.lost.is_empty(), "silence is no loss");
    assert!(begin.elapsed() < std::time::Duration::from_secs(10), "{:?}", begin.elapsed());
}
