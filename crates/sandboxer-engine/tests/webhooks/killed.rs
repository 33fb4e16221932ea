//! The example's proof in small: the deliverer is killed, and nothing is lost. The child is this test binary again.

#[path = "../../examples/outbox/run.rs"]
mod run;

use std::path::Path;
use std::process::{Command, Stdio};

const HOME: &str = "SANDBOXER_TEST_OUTBOX_HOME";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a child of nothing_is_lost_when_the_deliverer_is_killed"]
async fn child_delivers() {
    let home = std::env::var_os(HOME).expect("started by another test");
    run::deliver(Path::new(&home)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_the_deliverer_is_killed() {
    let figures = run::run(500, 3, |home| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["killed::child_delivers", "--exact", "--ignored"]).env(HOME, home);
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        command
    })
    .await;
    assert_eq!((figures.events, figures.kills), (500, 3));
    let share = figures.refused * 100 / figures.requests;
    assert!((35..=60).contains(&share), "it should fail about half the time: {figures:?}");
    assert!(figures.repeats <= 3 * 32, "at most what was under way at a kill: {figures:?}");
    assert!(figures.took.as_secs() < 60, "{figures:?}");
}
