//! Pause stops everything where it stands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Case;
use crate::conformance::rig::{Outcome, Rig, ensure};
use crate::conformance::sandbox::{Sandbox, script};

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(
        "pause",
        "nothing runs while it is paused, and goes on afterwards",
        &["pause", "exec"],
        pause,
    )]
}

/// Ten lines a second, each with the time, so that three seconds of pause are missed.
const BEAT: &str = "while :; do read -r now rest < /proc/uptime; echo $now >> beat; sleep 0.1; done";

/// The longest time between two lines. A machine whose clock stands still during a pause has none.
async fn longest_gap(sandbox: &Sandbox) -> Outcome<f64> {
    let text = sandbox.sh("cat beat", &[]).await?;
    let times: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    Ok(times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max))
}

async fn pause(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.own().await?;
    let (extension, handle) = (&sandbox.extension, &sandbox.handle);
    let mut spec = script(BEAT, &[]);
    spec.timeout = None;
    let _beating = sandbox.start(spec).await?;
    sandbox.wait_for_beats("beat").await?;
    let start = Instant::now();
    let before = sandbox.beats("beat").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let rate = (sandbox.beats("beat").await? - before) as f64 / start.elapsed().as_secs_f64();
    let before = sandbox.beats("beat").await?;
    let start = Instant::now();
    extension.pause(handle).await?;
    extension.pause(handle).await?;
    ensure(extension.life(handle).await?.is_alive(), || "a paused sandbox is not alive".into())?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let other = rig.instance();
    other.resume(handle).await?;
    other.resume(handle).await?;
    let after = sandbox.beats("beat").await?;
    let expected = rate * start.elapsed().as_secs_f64();
    // Half of the pause is missed at least. Looking takes its time, too, and more of it in a machine that is emulated.
    let few = ((after - before) as f64) < expected - rate * 1.5;
    ensure(few || longest_gap(&sandbox).await? > 2.5, || {
        format!("{} lines came during a pause, {expected:.0} would come without", after - before)
    })?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure(sandbox.beats("beat").await? > after, || "nothing goes on after the pause".into())?;
    sandbox.teardown().await
}
