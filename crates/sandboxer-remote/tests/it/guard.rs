//! Deadlines that are kept with nobody there.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use sandboxer_core::ErrorKind;
use sandboxer_remote::guard::KILL_MARKED;
use sandboxer_remote::{Command, Guard, Remote};
use sandboxer_testkit::real::{require, sshd::SshHost};

fn after(seconds: i64) -> Timestamp {
    Timestamp::now() + jiff::SignedDuration::from_secs(seconds)
}

fn host() -> Option<(SshHost, tempfile::TempDir, Remote)> {
    require(SshHost::available())?;
    let host = SshHost::start("guarded");
    let state = tempfile::tempdir().unwrap();
    let remote = Remote::open(&host.host(), state.path()).unwrap();
    Some((host, state, remote))
}

async fn until(what: &str, limit: u64, mut happened: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < Duration::from_secs(limit), "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    begin.elapsed()
}

fn guards(host: &SshHost) -> usize {
    host.processes().iter().filter(|line| line.contains(".guard/script")).count()
}

#[tokio::test]
async fn at_the_deadline_everything_goes_without_anybody() {
    let Some((host, _state, remote)) = host() else { return };
    remote.check("making", Command::new(["mkdir", "-p", "box/workspace"])).await.unwrap();
    remote
        .check(
            "starting",
            Command::new(["sh", "-c", "setsid sleep 4711 >/dev/null 2>&1 &"]).env("TAG", "sbx_1"),
        )
        .await
        .unwrap();
    let guard = Guard::new(&remote, "~/box");
    let teardown = format!("{KILL_MARKED}\nkill_marked TAG=sbx_1\npwd >\"$HOME/torn\"\n");
    guard.install(after(3), None, &teardown).await.unwrap();
    // Again, as after a crash: the first one is found.
    guard.install(after(3), None, &teardown).await.unwrap();
    assert!(guard.is_alive().await.unwrap());
    assert_eq!(guards(&host), 1);
    remote.disconnect().await;
    let took = until("the end", 10, || !host.home().join("box").exists()).await;
    assert!(took > Duration::from_millis(1500), "{took:?}");
    assert_eq!(std::fs::read_to_string(host.home().join("torn")).unwrap(), "/root/box\n");
    until("the guard's own end", 5, || guards(&host) == 0).await;
    assert!(!host.processes().iter().any(|line| line.contains("4711")), "{:?}", host.processes());
    assert!(!guard.is_alive().await.unwrap());
    assert_eq!(guard.extend(after(9)).await.unwrap_err().kind(), ErrorKind::NotFound);
    guard.stop().await.unwrap();
}

#[tokio::test]
async fn deadlines_move_and_guards_stop() {
    let Some((host, _state, remote)) = host() else { return };
    remote.check("making", Command::new(["mkdir", "one", "two"])).await.unwrap();
    let (one, two) = (Guard::new(&remote, "~/one"), Guard::new(&remote, "~/two"));
    one.install(after(2), None, ":").await.unwrap();
    two.install(after(60), None, ":").await.unwrap();
    one.extend(after(60)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(host.home().join("one").exists() && one.is_alive().await.unwrap());
    one.extend(after(1)).await.unwrap();
    until("the earlier deadline", 5, || !host.home().join("one").exists()).await;
    two.stop().await.unwrap();
    two.stop().await.unwrap();
    assert_eq!(guards(&host), 0);
    assert!(host.home().join("two").exists());
}

#[tokio::test]
async fn a_recycled_pid_is_nobody() {
    let Some((host, _state, remote)) = host() else { return };
    remote.check("making", Command::new(["mkdir", "one"])).await.unwrap();
    let guard = Guard::new(&remote, "~/one");
    guard.install(after(60), None, ":").await.unwrap();
    // What a reboot leaves: a file with a number that is somebody else's now.
    guard.stop().await.unwrap();
    let session = remote.start(Command::new(["sleep", "4712"])).await.unwrap();
    let pid = remote.output(Command::new(["pgrep", "-x", "sleep"]), 100).await.unwrap().text();
    std::fs::write(host.home().join("one/.guard/pid"), format!("{pid} 1\n")).unwrap();
    assert!(!guard.is_alive().await.unwrap());
    guard.stop().await.unwrap();
    assert!(host.processes().iter().any(|line| line.contains("4712")));
    guard.install(after(60), None, ":").await.unwrap();
    assert!(guard.is_alive().await.unwrap());
    drop(session);
}

#[tokio::test]
async fn idleness_ends_it_and_use_does_not() {
    let Some((host, _state, remote)) = host() else { return };
    remote.check("making", Command::new(["mkdir", "box"])).await.unwrap();
    let guard = Guard::new(&remote, "~/box");
    guard.install(after(600), Some(Duration::from_secs(2)), ":").await.unwrap();
    remote.check("working", Command::new(["sleep", "5"]).guarded_by("/root/box")).await.unwrap();
    assert!(host.home().join("box").exists());
    until("idleness", 8, || !host.home().join("box").exists()).await;
}
