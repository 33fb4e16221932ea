//! From launch to nothing left.

use sandboxer_runtime::{
    ControlName, ErrorKind, ExecSpec, LauncherExe, Limits, Outcome, Runtime, RuntimeDirs, SandboxSpec,
};
use std::time::{Duration, Instant, SystemTime};

use crate::common;
use crate::common::{Fixture, eventually, id, process_exists, run, sh};

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_sandbox_runs_a_command_and_leaves_nothing() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec("simple");
    spec.limits = Limits { memory_mb: Some(128), pids: Some(64), cpu: Some(1.5), ..Limits::default() };
    let launched = fixture.runtime.launch(spec).await.unwrap();
    assert!(!launched.existing);
    launched.control.ping().await.unwrap();
    let ran = sh(&launched.control, "echo out; echo err >&2; id -u; pwd; hostname").await;
    assert_eq!(ran.stdout, "out\n1000\n/workspace\nsandbox\n");
    assert_eq!(ran.stderr, "err\n");
    let status = launched.control.status(true).await.unwrap();
    assert!(status.enforced.verified);
    for control in &status.enforced.controls {
        assert_eq!(control.outcome, Outcome::Enforced, "{control:?}");
    }
    assert!(status.enforced.get(ControlName::Seccomp).is_some());
    assert!(status.usage.memory_bytes.unwrap() > 0);
    fixture.end(&launched).await;
    // Twice is the same as once.
    assert!(fixture.runtime.stop(&launched.id).await.unwrap().is_clean());
    let error = fixture.runtime.connect(&launched.id).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotRunning);
}

#[tokio::test]
async fn the_deadline_ends_it_without_anybody() {
    let fixture = Fixture::new();
    // The first launch builds the base layer, which must not count.
    let warm = fixture.launch("warm").await;
    fixture.end(&warm).await;
    let spec = SandboxSpec::new(id("ttl"), Duration::from_secs(1));
    let launched = fixture.runtime.launch(spec).await.unwrap();
    let mut session = launched.control.exec(ExecSpec::new(["sleep", "100"])).await.unwrap();
    let (start, began) = (Instant::now(), SystemTime::now());
    assert!(session.wait().await.is_err());
    assert!(start.elapsed() < Duration::from_secs(5));
    let id = launched.id.clone();
    let path = fixture.runtime.dirs().sandbox(&id);
    eventually("the directory goes", || !path.exists()).await;
    eventually("the supervisor goes", || !process_exists(launched.supervisor_pid)).await;
    fixture.assert_nothing_left(&id);
    // When that was is known until somebody clears it away. Times of files are a tick of the kernel behind.
    let ended = fixture.runtime.ended_at(&id).unwrap();
    assert!(ended + Duration::from_millis(50) > began && ended <= SystemTime::now(), "{ended:?}");
    assert!(fixture.runtime.stop(&id).await.unwrap().is_clean());
    assert_eq!(fixture.runtime.ended_at(&id), None);
    assert_eq!(fixture.runtime.ended_at(&warm.id), None);
}

#[tokio::test]
async fn the_end_of_its_first_process_is_noted() {
    let fixture = Fixture::new();
    let launched = fixture.launch("init").await;
    kill(launched.init_pid);
    eventually("the supervisor goes", || !process_exists(launched.supervisor_pid)).await;
    assert!(!fixture.runtime.is_alive(&launched.id));
    assert!(fixture.runtime.ended_at(&launched.id).unwrap() <= SystemTime::now());
    // The next one of this name has nothing to do with it.
    let again =
        fixture.runtime.launch(SandboxSpec::new(&launched.id, Duration::from_secs(60))).await.unwrap();
    fixture.end(&again).await;
    assert_eq!(fixture.runtime.ended_at(&launched.id), None);
}

#[tokio::test]
async fn an_extended_deadline_and_an_idle_one() {
    let fixture = Fixture::new();
    let warm = fixture.launch("warm").await;
    fixture.end(&warm).await;
    let mut spec = SandboxSpec::new(id("idle"), Duration::from_millis(900));
    spec.idle_timeout_ms = Some(2500);
    let launched = fixture.runtime.launch(spec.clone()).await.unwrap();
    let later = spec.deadline_unix_ms + 60_000;
    launched.control.extend(later).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(launched.control.status(false).await.unwrap().deadline_unix_ms, later);
    let path = fixture.runtime.dirs().sandbox(&launched.id);
    eventually("it ends when idle", || !path.exists()).await;
}

#[tokio::test]
async fn a_killed_supervisor_leaves_no_process_and_can_be_swept() {
    let fixture = Fixture::new();
    let launched = fixture.launch("crash").await;
    let mut session = launched.control.exec(ExecSpec::new(["sleep", "100"])).await.unwrap();
    kill(launched.supervisor_pid);
    assert!(session.wait().await.is_err());
    eventually("init follows", || !process_exists(launched.init_pid)).await;
    let found = fixture.runtime.list().unwrap();
    assert_eq!(found.len(), 1);
    assert!(!found[0].alive);
    let report = fixture.runtime.sweep(&launched.id).unwrap();
    assert!(report.is_clean(), "{report:?}");
    fixture.assert_nothing_left(&launched.id);
}

#[tokio::test]
async fn the_same_id_can_be_launched_over_its_own_remains() {
    let fixture = Fixture::new();
    let launched = fixture.launch("remains").await;
    kill(launched.supervisor_pid);
    eventually("init follows", || !process_exists(launched.init_pid)).await;
    let again =
        fixture.runtime.launch(SandboxSpec::new(&launched.id, Duration::from_secs(60))).await.unwrap();
    assert!(!again.existing);
    assert_eq!(sh(&again.control, "echo again").await.stdout, "again\n");
    fixture.end(&again).await;
}

#[tokio::test]
async fn a_killed_launcher_is_replaced_and_its_sandboxes_live() {
    let fixture = Fixture::new();
    let launched = fixture.launch("launcher").await;
    kill(i32::try_from(fixture.runtime.launcher_pid().unwrap()).unwrap());
    assert_eq!(sh(&launched.control, "echo alive").await.stdout, "alive\n");
    let other = fixture.launch("launcher").await;
    fixture.end(&other).await;
    fixture.end(&launched).await;
}

#[tokio::test]
async fn a_launch_is_idempotent_on_its_id() {
    let fixture = Fixture::new();
    let spec = fixture.spec("twice");
    let first = fixture.runtime.launch(spec.clone()).await.unwrap();
    let second = fixture.runtime.launch(spec.clone()).await.unwrap();
    assert!(second.existing);
    assert_eq!(first.init_pid, second.init_pid);
    fixture.end(&first).await;
    let (a, b, c) = tokio::join!(
        fixture.runtime.launch(spec.clone()),
        fixture.runtime.launch(spec.clone()),
        fixture.runtime.launch(spec.clone())
    );
    let all = [a.unwrap(), b.unwrap(), c.unwrap()];
    assert_eq!(all.iter().filter(|launched| !launched.existing).count(), 1);
    fixture.end(&all[0]).await;
}

#[tokio::test]
async fn another_runtime_finds_and_uses_it() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec("found");
    spec.labels.insert("owner".to_owned(), "test".to_owned());
    let launched = fixture.runtime.launch(spec).await.unwrap();
    let other = Runtime::new(fixture.runtime.dirs().clone(), LauncherExe::Path(common::launcher()));
    let found = other.list().unwrap();
    assert_eq!((found[0].alive, found[0].labels["owner"].as_str()), (true, "test"));
    let control = other.connect(&launched.id).await.unwrap();
    assert_eq!(sh(&control, "echo hi").await.stdout, "hi\n");
    assert_eq!(other.sweep(&launched.id).unwrap_err().kind, ErrorKind::Busy);
    fixture.end(&launched).await;
}

#[tokio::test]
async fn a_long_state_path_works() {
    let fixture = Fixture::new();
    let long = fixture.dir.path().join("x".repeat(120)).join("y".repeat(120));
    let runtime = Runtime::new(RuntimeDirs::new(&long), LauncherExe::Path(common::launcher()));
    let launched = runtime.launch(fixture.spec("long")).await.unwrap();
    assert_eq!(sh(&launched.control, "echo hi").await.stdout, "hi\n");
    assert!(runtime.connect(&launched.id).await.unwrap().status(false).await.is_ok());
    assert!(runtime.stop(&launched.id).await.unwrap().is_clean());
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_written_is_a_clear_error() {
    let fixture = Fixture::new();
    let runtime = Runtime::new(RuntimeDirs::new("/proc/sandboxer"), LauncherExe::Path(common::launcher()));
    let error = runtime.launch(fixture.spec("nowhere")).await.unwrap_err();
    assert_eq!(error.step, "base");
    assert!(error.to_string().contains("/proc/sandboxer"), "{error}");
}

#[tokio::test]
async fn bad_specs_are_refused() {
    let fixture = Fixture::new();
    for bad in ["", "UPPER", "a/b", "..", &"x".repeat(65)] {
        let error = fixture.runtime.launch(SandboxSpec::new(bad, Duration::from_secs(5))).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidSpec);
    }
    let mut spec = fixture.spec("bad");
    spec.limits.memory_mb = Some(1);
    assert_eq!(fixture.runtime.launch(spec).await.unwrap_err().kind, ErrorKind::InvalidSpec);
}

#[tokio::test]
async fn a_failed_launch_leaves_nothing() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec("broken");
    spec.layers = vec!["/nonexistent/layer".into()];
    let error = fixture.runtime.launch(spec.clone()).await.unwrap_err();
    assert_eq!(error.step, "layers", "{error}");
    fixture.assert_nothing_left(&spec.id);
    let layer = fixture.dir.path().join("layer");
    std::fs::create_dir(&layer).unwrap();
    std::fs::write(layer.join("workspace"), "not a directory").unwrap();
    spec.layers = vec![layer];
    spec.mounts = vec![sandboxer_runtime::Mount {
        source: fixture.dir.path().join("layer"),
        target: "/workspace/a".into(),
        read_only: false,
    }];
    let error = fixture.runtime.launch(spec.clone()).await.unwrap_err();
    assert_eq!(error.step, "mount_target", "{error}");
    fixture.assert_nothing_left(&spec.id);
}

#[tokio::test]
async fn many_sandboxes_at_once() {
    let fixture = Fixture::new();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (runtime, spec) = (fixture.runtime.clone(), fixture.spec("burst"));
        tasks.spawn(async move {
            let launched = runtime.launch(spec).await.unwrap();
            let ran = run(&launched.control, ExecSpec::new(["true"])).await;
            assert_eq!(ran.exit.code, 0);
            assert!(runtime.stop(&launched.id).await.unwrap().is_clean());
        });
    }
    tasks.join_all().await;
    assert_eq!(fixture.runtime.list().unwrap(), Vec::new());
}

/// Two homes on one machine may have a sandbox of the same id, as a provider that runs on this runtime has.
#[tokio::test]
async fn the_same_id_in_another_root_is_another_sandbox() {
    let (one, two) = (Fixture::new(), Fixture::new());
    let id = id("twice");
    let spec = || SandboxSpec::new(id.clone(), Duration::from_secs(60));
    let first = one.runtime.launch(spec()).await.unwrap();
    let second = two.runtime.launch(spec()).await.unwrap();
    assert!(one.runtime.stop(&first.id).await.unwrap().is_clean());
    assert!(process_exists(second.init_pid), "the other one went as well");
    two.end(&second).await;
}
