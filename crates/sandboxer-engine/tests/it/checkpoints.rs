//! Pause, snapshot, restore and fork: what is told, what stays, and what a crash may leave.

use std::time::Duration;

use sandboxer_core::exec::Command;
use sandboxer_core::page::Limit;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::snapshot::{Snapshot, SnapshotRecord};
use sandboxer_core::{Actor, Dur, ErrorKind, ExecId, KeyId, SandboxId, SnapshotId, State};
use sandboxer_engine::{Caller, CreateOptions, ForkRequest};
use sandboxer_store::{Books, EventFilter, Lease, LeaseChange, SnapshotFilter, Update};
use sandboxer_testkit::{Workshop, eventually};

fn me() -> Caller {
    Caller::local_admin()
}

/// A process that certainly is no more: this machine and boot, a pid with another start time.
fn dead_owner() -> String {
    let me = sandboxer_engine::owner::Owner::of_this_process();
    let (rest, _) = me.as_str().rsplit_once('/').unwrap();
    format!("{rest}/1")
}

async fn workshop() -> Workshop {
    let workshop = Workshop::new().await.unwrap();
    workshop.extension.script(|script| script.checkpoints = true);
    workshop
}

async fn create(workshop: &Workshop, request: CreateRequest) -> Sandbox {
    workshop.engine.create(&me(), request, CreateOptions::default()).await.unwrap().sandbox
}

async fn exec(workshop: &Workshop, id: SandboxId) -> sandboxer_core::Result<()> {
    let request = sandboxer_core::request::ExecRequest::new(Command::Shell("true".into()));
    let spec = request.to_spec(ExecId::generate(), false).unwrap();
    workshop.engine.exec(&me(), id, spec).await.map(drop)
}

/// The kinds of a sandbox's events, without what they have in common.
async fn told(workshop: &Workshop, id: SandboxId) -> Vec<String> {
    let filter = EventFilter { subject: Some(id), owner_key: None };
    let events = workshop.store.events(&filter, 0, Limit::DEFAULT).await.unwrap();
    events.iter().map(|placed| placed.event.kind.trim_start_matches("dev.sandboxer.").to_owned()).collect()
}

async fn listed(workshop: &Workshop) -> Vec<SnapshotId> {
    let page = workshop.engine.snapshot_list(&me(), SnapshotFilter::default(), None, Limit::DEFAULT).await;
    page.unwrap().items.iter().map(|snapshot| snapshot.snapshot_id).collect()
}

#[tokio::test]
async fn a_paused_sandbox_stands_still_and_goes_on_as_it_was() {
    let workshop = workshop().await;
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    for _ in 0..2 {
        assert_eq!(workshop.engine.pause(&me(), id).await.unwrap().state, State::Paused);
    }
    assert_eq!(workshop.extension.paused(), [id.to_string()]);
    let refused = exec(&workshop, id).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IllegalState);
    assert_eq!(refused.hint(), Some(&*format!("`sandboxer resume {id}` first")));
    let refused = workshop.engine.file_stat(&me(), id, "/x").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IllegalState);
    for _ in 0..2 {
        assert_eq!(workshop.engine.resume(&me(), id).await.unwrap().state, State::Ready);
    }
    exec(&workshop, id).await.unwrap();
    workshop.engine.pause(&me(), id).await.unwrap();
    assert_eq!(workshop.engine.resume(&me(), id).await.unwrap().state, State::Active);
    let told = told(&workshop, id).await;
    let after_ready: Vec<&str> = told.iter().skip(3).map(String::as_str).collect();
    let expected = ["sandbox.paused", "sandbox.ready", "sandbox.active", "sandbox.paused", "sandbox.active"];
    assert_eq!(after_ready, expected);
    assert_eq!(workshop.store.get(id).await.unwrap().unwrap().lease, None);
}

#[tokio::test]
async fn the_ttl_goes_on_and_a_paused_sandbox_can_be_destroyed() {
    let workshop = workshop().await;
    let ttl = Some(Dur::from_secs(60));
    let old = create(&workshop, CreateRequest { ttl, ..CreateRequest::default() }).await.sandbox_id;
    let other = create(&workshop, CreateRequest::default()).await.sandbox_id;
    for id in [old, other] {
        workshop.engine.pause(&me(), id).await.unwrap();
    }
    assert_eq!(workshop.engine.destroy(&me(), other).await.unwrap().state, State::Destroyed);
    workshop.clock.advance(Dur::from_secs(61));
    let over = workshop.engine.resume(&me(), old).await.unwrap_err();
    assert_eq!(over.kind(), ErrorKind::IllegalState, "{over:?}");
    let ended = workshop.engine.get(&me(), old).await.unwrap();
    assert_eq!((ended.state, ended.reason.as_deref()), (State::Destroyed, Some("ttl")));
    assert_eq!(workshop.extension.living(), Vec::<String>::new());
}

#[tokio::test]
async fn what_an_extension_cannot_do_is_said_before_anything_is_written() {
    let workshop = Workshop::new().await.unwrap();
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    let before = workshop.store.get(id).await.unwrap();
    let engine = &workshop.engine;
    let errors = [
        engine.pause(&me(), id).await.unwrap_err(),
        engine.resume(&me(), id).await.unwrap_err(),
        engine.snapshot(&me(), id, None).await.unwrap_err(),
        engine.fork(&me(), id, ForkRequest::default()).await.unwrap_err(),
        engine.port_connect(&me(), id, 80).await.map(drop).unwrap_err(),
        engine.backend_logs(&me(), id, false).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    }
    assert_eq!(workshop.store.get(id).await.unwrap(), before);
    assert_eq!(workshop.store.snapshots_unsettled().await.unwrap(), []);
}

#[tokio::test]
async fn a_pause_that_fails_leaves_it_running() {
    let workshop = workshop().await;
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    workshop.extension.script(|script| script.pause_fails = true);
    assert_eq!(workshop.engine.pause(&me(), id).await.unwrap_err().kind(), ErrorKind::BackendFailed);
    assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Ready);
    exec(&workshop, id).await.unwrap();
}

#[tokio::test]
async fn many_callers_at_once_agree() {
    let workshop = workshop().await;
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    let engines = [workshop.engine.clone(), workshop.second_engine()];
    let mut work = tokio::task::JoinSet::new();
    for turn in 0..16 {
        let engine = engines[turn % 2].clone();
        work.spawn(async move { engine.pause(&me(), id).await.map(|sandbox| sandbox.state) });
    }
    while let Some(state) = work.join_next().await {
        assert_eq!(state.unwrap().unwrap(), State::Paused);
    }
    let paused = told(&workshop, id).await.iter().filter(|kind| *kind == "sandbox.paused").count();
    assert_eq!(paused, 1);
}

/// Leaves the row as a process does that died in the middle of a pause, a resume or a snapshot.
async fn abandon(workshop: &Workshop, id: SandboxId) {
    let stored = workshop.store.get(id).await.unwrap().unwrap();
    let until = Dur::from_secs(3_600).after(workshop.engine.now());
    let update = Update {
        record: stored.record,
        expected_version: stored.version,
        steps: Vec::new(),
        facts: Vec::new(),
        lease: LeaseChange::Take(Lease { owner: dead_owner(), until }),
        books: Books::default(),
    };
    workshop.store.update(update).await.unwrap();
}

#[tokio::test]
async fn a_crash_in_the_middle_brings_the_backend_back_to_what_the_row_says() {
    let workshop = workshop().await;
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    // It was stopped, and nobody was told: it runs again before the next command.
    workshop.extension.freeze(&id.to_string());
    abandon(&workshop, id).await;
    exec(&workshop, id).await.unwrap();
    assert_eq!(workshop.extension.paused(), Vec::<String>::new());
    assert_eq!(workshop.store.get(id).await.unwrap().unwrap().lease, None);
    // It runs again, and nobody was told: it is stopped again.
    workshop.engine.pause(&me(), id).await.unwrap();
    let handle = workshop.store.get(id).await.unwrap().unwrap().record.handle.unwrap();
    sandboxer_core::Extension::resume(&workshop.extension, &handle).await.unwrap();
    abandon(&workshop, id).await;
    workshop.engine.reconcile().await.unwrap();
    assert_eq!(workshop.extension.paused(), [id.to_string()]);
    assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Paused);
}

#[tokio::test]
async fn a_snapshot_is_a_copy_that_outlives_its_sandbox() {
    let workshop = workshop().await;
    let request = CreateRequest {
        env: [("COLOUR".to_owned(), "blue".to_owned())].into(),
        ttl: Some(Dur::from_secs(60)),
        ..CreateRequest::default()
    };
    let source = create(&workshop, request).await;
    let id = source.sandbox_id;
    workshop.extension.fill(&id.to_string(), "before");
    let snapshot = workshop.engine.snapshot(&me(), id, Some("first".into())).await.unwrap();
    assert_eq!((snapshot.sandbox_id, snapshot.name.as_deref()), (id, Some("first")));
    assert_eq!(snapshot.size_bytes, Some(7));
    workshop.extension.fill(&id.to_string(), "after");
    workshop.engine.destroy(&me(), id).await.unwrap();
    assert_eq!(workshop.engine.snapshot_get(&me(), snapshot.snapshot_id).await.unwrap(), snapshot);

    let options = CreateOptions { idempotency_key: Some("k".into()), ..CreateOptions::default() };
    let restore = || async {
        let options = options.clone();
        workshop.engine.restore(&me(), snapshot.snapshot_id, CreateRequest::default(), options).await
    };
    let copy = restore().await.unwrap().sandbox;
    assert_eq!(restore().await.unwrap().sandbox.sandbox_id, copy.sandbox_id, "the same key, the same answer");
    assert_eq!(workshop.extension.contents(&copy.sandbox_id.to_string()).as_deref(), Some("before"));
    assert_eq!((&copy.profile, &copy.config_hash), (&source.profile, &source.config_hash));
    let record = workshop.store.get(copy.sandbox_id).await.unwrap().unwrap().record;
    assert_eq!(record.spec.variables.get("COLOUR").map(String::as_str), Some("blue"));
    assert!(copy.ttl > Dur::from_secs(60), "the profile's own");

    workshop.engine.snapshot_delete(&me(), snapshot.snapshot_id).await.unwrap();
    assert_eq!(workshop.extension.snapshots(), Vec::<String>::new());
    let gone = workshop.engine.snapshot_delete(&me(), snapshot.snapshot_id).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::SnapshotNotFound);
    let told = told(&workshop, id).await;
    assert!(told.contains(&"snapshot.created".to_owned()));
    assert_eq!(told.last().map(String::as_str), Some("snapshot.deleted"));
}

#[tokio::test]
async fn a_snapshot_decides_where_it_is_restored() {
    let workshop = workshop().await;
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    let snapshot = workshop.engine.snapshot(&me(), id, None).await.unwrap().snapshot_id;
    let from = Some(snapshot.to_string());
    for request in [
        CreateRequest {
            from: from.clone(),
            extension: Some("ext.docker".into()),
            ..CreateRequest::default()
        },
        CreateRequest { from: from.clone(), host: Some("elsewhere".into()), ..CreateRequest::default() },
    ] {
        let refused = workshop.engine.create(&me(), request, CreateOptions::default()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused:?}");
    }
    let unknown =
        CreateRequest { from: Some(SnapshotId::generate().to_string()), ..CreateRequest::default() };
    let refused = workshop.engine.create(&me(), unknown, CreateOptions::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SnapshotNotFound);
    let nonsense = CreateRequest { from: Some("latest".into()), ..CreateRequest::default() };
    let refused = workshop.engine.create(&me(), nonsense, CreateOptions::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SnapshotNotFound);
    // A copy is not mistaken for the original where sandboxes are shared.
    let shared = Some(sandboxer_core::profile::Scope::Shared);
    let one = create(&workshop, CreateRequest { scope: shared, ..CreateRequest::default() }).await;
    let copy =
        create(&workshop, CreateRequest { scope: shared, from: from.clone(), ..CreateRequest::default() })
            .await;
    let again = create(&workshop, CreateRequest { scope: shared, from, ..CreateRequest::default() }).await;
    assert!(one.sandbox_id != copy.sandbox_id && again.sandbox_id == copy.sandbox_id && again.reused);
}

#[tokio::test]
async fn a_paused_sandbox_that_is_shared_is_given_back_running() {
    let workshop = workshop().await;
    let request =
        CreateRequest { scope: Some(sandboxer_core::profile::Scope::Shared), ..CreateRequest::default() };
    let first = create(&workshop, request.clone()).await;
    workshop.engine.pause(&me(), first.sandbox_id).await.unwrap();
    let again = create(&workshop, request).await;
    assert_eq!((again.sandbox_id, again.reused, again.state), (first.sandbox_id, true, State::Ready));
}

#[tokio::test]
async fn a_snapshot_that_fails_leaves_nothing() {
    let workshop = workshop().await;
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    workshop.extension.script(|script| script.snapshot_fails = true);
    assert_eq!(workshop.engine.snapshot(&me(), id, None).await.unwrap_err().kind(), ErrorKind::NoSpace);
    workshop.extension.script(|script| {
        script.snapshot_fails = false;
        script.snapshot_fails_after_effect = true;
    });
    assert_eq!(workshop.engine.snapshot(&me(), id, None).await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(workshop.extension.snapshots(), Vec::<String>::new());
    assert_eq!(workshop.store.snapshots_unsettled().await.unwrap(), []);
    assert_eq!(told(&workshop, id).await.len(), 3, "nothing was made and nothing is told");
    exec(&workshop, id).await.unwrap();
    for name in ["", "a\nb", &"x".repeat(129)] {
        let refused = workshop.engine.snapshot(&me(), id, Some(name.into())).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
}

/// A row as a process leaves it that died before the extension answered.
async fn half_taken(workshop: &Workshop, of: &Sandbox) -> SnapshotId {
    let spec = workshop.store.get(of.sandbox_id).await.unwrap().unwrap().record.spec;
    let record = SnapshotRecord {
        snapshot: Snapshot {
            snapshot_id: SnapshotId::generate(),
            sandbox_id: of.sandbox_id,
            profile: of.profile.clone(),
            extension: of.extension.clone(),
            host: of.host.clone(),
            name: None,
            created_at: of.created_at,
            size_bytes: None,
            own_key_of: None,
        },
        spec,
        taken: None,
        owner_key: None,
    };
    let id = record.snapshot.snapshot_id;
    let until = Dur::from_secs(3_600).after(workshop.engine.now());
    workshop.store.snapshot_insert(record, false, Lease { owner: dead_owner(), until }).await.unwrap();
    id
}

#[tokio::test]
async fn what_a_crash_left_of_a_snapshot_is_removed() {
    let workshop = workshop().await;
    let sandbox = create(&workshop, CreateRequest::default()).await;
    let (with_effect, without) =
        (half_taken(&workshop, &sandbox).await, half_taken(&workshop, &sandbox).await);
    workshop.extension.plant_snapshot(&with_effect.to_string());
    for id in [with_effect, without] {
        let hidden = workshop.engine.snapshot_get(&me(), id).await.unwrap_err();
        assert_eq!(hidden.kind(), ErrorKind::SnapshotNotFound);
    }
    workshop.engine.reconcile().await.unwrap();
    assert_eq!(workshop.extension.snapshots(), Vec::<String>::new());
    assert_eq!(workshop.store.snapshots_unsettled().await.unwrap(), []);
    assert!(!told(&workshop, sandbox.sandbox_id).await.iter().any(|kind| kind.starts_with("snapshot.")));
}

#[tokio::test]
async fn a_deletion_that_fails_is_said_and_tried_again() {
    let workshop = workshop().await;
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    let snapshot = workshop.engine.snapshot(&me(), id, None).await.unwrap().snapshot_id;
    workshop.extension.script(|script| script.snapshot_delete_fails = true);
    let failed = workshop.engine.snapshot_delete(&me(), snapshot).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::CleanupFailed);
    assert_eq!(listed(&workshop).await, [snapshot], "it stays visible");
    let request = CreateRequest { from: Some(snapshot.to_string()), ..CreateRequest::default() };
    let refused = workshop.second_engine().plan_for(&me(), &request).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IllegalState);
    workshop.extension.script(|script| script.snapshot_delete_fails = false);
    workshop.engine.refresh().await.unwrap();
    assert_eq!(listed(&workshop).await, []);
    assert_eq!(told(&workshop, id).await.last().map(String::as_str), Some("snapshot.deleted"));
}

#[tokio::test]
async fn a_snapshot_that_the_backend_needs_stays() {
    let workshop = workshop().await;
    workshop.extension.script(|script| script.snapshot_needed = true);
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    let snapshot = workshop.engine.snapshot(&me(), id, None).await.unwrap().snapshot_id;
    let request = CreateRequest { from: Some(snapshot.to_string()), ..CreateRequest::default() };
    let copy = create(&workshop, request.clone()).await.sandbox_id;
    let refused = workshop.engine.snapshot_delete(&me(), snapshot).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    create(&workshop, request).await;
    assert_eq!(listed(&workshop).await, [snapshot]);
    let _ = copy;
}

#[tokio::test]
async fn a_fork_makes_copies_and_leaves_no_snapshot() {
    let workshop = workshop().await;
    let labels = [("team".to_owned(), "blue".to_owned())].into();
    let source = create(&workshop, CreateRequest { labels, ..CreateRequest::default() }).await;
    workshop.extension.fill(&source.sandbox_id.to_string(), "state");
    let request = ForkRequest { count: 3, ttl: Some(Dur::from_secs(90)) };
    let forked = workshop.engine.fork(&me(), source.sandbox_id, request).await.unwrap();
    assert_eq!((forked.items.len(), forked.errors.len()), (3, 0));
    for copy in &forked.items {
        assert_eq!((&copy.labels, copy.ttl), (&source.labels, Dur::from_secs(90)));
        let inside = workshop.extension.contents(&copy.sandbox_id.to_string());
        assert_eq!(inside.as_deref(), Some("state"));
    }
    assert_eq!(workshop.extension.living().len(), 4);
    assert_eq!(workshop.extension.snapshots(), Vec::<String>::new());
    assert_eq!(listed(&workshop).await, []);
    for count in [0, 33] {
        let refused = workshop.engine.fork(&me(), source.sandbox_id, ForkRequest { count, ttl: None }).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[tokio::test]
async fn a_fork_that_fails_in_part_says_so_and_cleans_up() {
    let workshop = workshop().await;
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    workshop.extension.script(|script| script.restores_left = Some(2));
    let forked = workshop.engine.fork(&me(), id, ForkRequest { count: 4, ttl: None }).await.unwrap();
    assert_eq!((forked.items.len(), forked.errors.len()), (2, 2));
    assert_eq!(forked.errors[0].code, "no_space");
    assert_eq!((workshop.extension.living().len(), workshop.extension.snapshots().len()), (3, 0));
    let none = workshop.engine.fork(&me(), id, ForkRequest { count: 2, ttl: None }).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NoSpace);
    assert_eq!(workshop.extension.snapshots(), Vec::<String>::new());
}

#[tokio::test]
async fn a_forks_snapshot_that_the_backend_needs_goes_after_the_forks() {
    let workshop = workshop().await;
    workshop.extension.script(|script| script.snapshot_needed = true);
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    let forked = workshop.engine.fork(&me(), id, ForkRequest::default()).await.unwrap();
    assert_eq!(workshop.extension.snapshots().len(), 1);
    workshop.engine.refresh().await.unwrap();
    assert_eq!(workshop.extension.snapshots().len(), 1);
    workshop.engine.destroy(&me(), forked.items[0].sandbox_id).await.unwrap();
    workshop.engine.refresh().await.unwrap();
    assert_eq!(workshop.extension.snapshots(), Vec::<String>::new());
}

#[tokio::test]
async fn a_sandbox_that_ends_during_a_snapshot_ends() {
    let workshop = workshop().await;
    let id = create(&workshop, CreateRequest::default()).await.sandbox_id;
    workshop.extension.script(|script| script.snapshot_takes = Duration::from_secs(1));
    let (engine, other) = (workshop.engine.clone(), workshop.second_engine());
    let (taken, destroyed) = tokio::join!(async move { engine.snapshot(&me(), id, None).await }, async {
        eventually("the snapshot is begun", || workshop.extension.snapshots_begun() > 0).await;
        other.destroy(&me(), id).await
    });
    assert_eq!(destroyed.unwrap().state, State::Destroyed);
    taken.unwrap_err();
    assert_eq!(workshop.extension.living(), Vec::<String>::new());
    assert_eq!(workshop.extension.snapshots(), Vec::<String>::new());
}

#[tokio::test]
async fn agents_see_only_snapshots_of_their_own() {
    let workshop = workshop().await;
    let one = Caller::with_key(Actor::Agt, KeyId::generate());
    let other = Caller::with_key(Actor::Agt, KeyId::generate());
    let made =
        workshop.engine.create(&one, CreateRequest::default(), CreateOptions::default()).await.unwrap();
    let id = made.sandbox.sandbox_id;
    let snapshot = workshop.engine.snapshot(&one, id, None).await.unwrap().snapshot_id;
    assert_eq!(
        workshop.engine.snapshot(&other, id, None).await.unwrap_err().kind(),
        ErrorKind::SandboxNotFound
    );
    assert_eq!(workshop.engine.pause(&other, id).await.unwrap_err().kind(), ErrorKind::SandboxNotFound);
    for refused in [
        workshop.engine.snapshot_get(&other, snapshot).await.map(drop).unwrap_err(),
        workshop.engine.snapshot_delete(&other, snapshot).await.map(drop).unwrap_err(),
        workshop
            .engine
            .restore(&other, snapshot, CreateRequest::default(), CreateOptions::default())
            .await
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::SnapshotNotFound);
    }
    let page = workshop.engine.snapshot_list(&other, SnapshotFilter::default(), None, Limit::DEFAULT).await;
    assert_eq!(page.unwrap().items, []);
    assert_eq!(listed(&workshop).await, [snapshot]);
}

#[tokio::test]
async fn progress_is_told_and_kept_in_part() {
    let workshop = workshop().await;
    workshop.extension.script(|script| {
        script.progress = (1..=500).map(|step| format!("step {step}\n")).collect();
        script.provision_takes = Duration::from_millis(50);
    });
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let progress = sandboxer_core::extension::Progress::new({
        let heard = heard.clone();
        move |line| heard.lock().unwrap().push(line.to_owned())
    });
    let options = CreateOptions { progress, ..CreateOptions::default() };
    let made = workshop.engine.create(&me(), CreateRequest::default(), options).await.unwrap();
    assert_eq!(heard.lock().unwrap().len(), 500);
    let filter = EventFilter { subject: Some(made.sandbox.sandbox_id), owner_key: None };
    let events = workshop.store.events(&filter, 0, Limit::DEFAULT).await.unwrap();
    let kept: Vec<_> = events.iter().filter(|e| e.event.kind == "dev.sandboxer.sandbox.progress").collect();
    assert!((1..=2).contains(&kept.len()), "{kept:?}");
    assert_eq!(kept.last().unwrap().event.data["line"], "step 500");
    assert_eq!(events.last().unwrap().event.kind, "dev.sandboxer.sandbox.ready");
}
