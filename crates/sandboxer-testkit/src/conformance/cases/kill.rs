//! Commands end when they must, with everything that they started.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sandboxer_core::Dur;
use sandboxer_core::exec::EXIT_TIMED_OUT;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, ensure, fail};
use crate::conformance::sandbox::{finish, script};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "exec.timeout",
            "a time-out ends the whole tree, also what left the session",
            &["exec"],
            timeout,
        ),
        Case::new(
            "exec.drop",
            "a command whose session is dropped ends with all that it started",
            &["exec"],
            dropped,
        ),
        Case::new(
            "exec.signal",
            "a signal reaches the command, or everything that it started",
            &["exec"],
            signal,
        ),
    ]
}

/// Children in the session, in a session of their own, and twice removed; then the command itself goes on for long.
const TREE: &str = "
beat() { while :; do echo x >> \"$1\"; sleep 0.1; done; }
beat \"$1.child\" &
setsid sh -c 'while :; do echo x >> \"$1\"; sleep 0.1; done' sh \"$1.session\" </dev/null >/dev/null 2>&1 &
( setsid sh -c '(trap \"\" TERM HUP; while :; do echo x >> \"$1\"; sleep 0.1; done) &' sh \"$1.daemon\" </dev/null >/dev/null 2>&1 & )
echo started
sleep 50";

const BRANCHES: [&str; 3] = ["child", "session", "daemon"];

async fn all_stop(sandbox: &crate::conformance::sandbox::Sandbox, name: &str) -> Outcome {
    for branch in BRANCHES {
        let file = format!("{name}.{branch}");
        ensure(sandbox.beats(&file).await? > 0, || format!("the {branch} never ran"))?;
        sandbox.beats_stop(&file).await?;
    }
    Ok(())
}

async fn timeout(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let mut spec = script(TREE, &["timeout"]);
    spec.timeout = Some(Dur::from_millis(1_500));
    let start = Instant::now();
    let output = sandbox.run(spec).await?;
    ensure(output.outcome.timed_out && output.outcome.exit_code == EXIT_TIMED_OUT, || {
        format!("no time-out is reported: {} {:?}", output.brief(), output.outcome)
    })?;
    ensure(start.elapsed() >= Duration::from_millis(1_400), || {
        format!("it ended after {:?}", start.elapsed())
    })?;
    ensure(start.elapsed() < Duration::from_secs(20), || format!("it took {:?}", start.elapsed()))?;
    all_stop(&sandbox, "timeout").await
}

async fn dropped(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let session = sandbox.start(script(TREE, &["dropped"])).await?;
    for branch in BRANCHES {
        sandbox.wait_for_beats(&format!("dropped.{branch}")).await?;
    }
    drop(session);
    all_stop(&sandbox, "dropped").await
}

async fn signal(rig: Arc<Rig>) -> Outcome {
    use tokio::io::AsyncReadExt as _;
    let sandbox = rig.shared().await?;
    let line = "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    let mut session = sandbox.start(script(line, &[])).await?;
    session.stdout.read_exact(&mut [0; 6]).await?;
    session.control.signal(15, false).await?;
    let output = match tokio::time::timeout(Duration::from_secs(20), finish(session, Vec::new())).await {
        Ok(output) => output?,
        Err(_) => return fail("TERM did not reach the command"),
    };
    ensure(output.text() == "caught" && output.outcome.exit_code == 7, || output.brief())?;

    let session = sandbox.start(script(TREE, &["signal"])).await?;
    for branch in BRANCHES {
        sandbox.wait_for_beats(&format!("signal.{branch}")).await?;
    }
    session.control.signal(9, true).await?;
    let output = match tokio::time::timeout(Duration::from_secs(20), finish(session, Vec::new())).await {
        Ok(output) => output?,
        Err(_) => return fail("KILL for the whole tree did not end the command"),
    };
    ensure(output.outcome.exit_code == 137, || output.brief())?;
    all_stop(&sandbox, "signal").await
}
