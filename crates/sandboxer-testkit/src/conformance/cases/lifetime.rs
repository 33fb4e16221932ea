//! Nothing lives for ever, and nothing needs its creator to die.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sandboxer_core::Dur;
use sandboxer_core::extension::Life;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, after, ensure, fail};
use crate::conformance::sandbox::Sandbox;

/// How far the clock of a backend elsewhere may be from ours.
const CLOCKS: Duration = Duration::from_secs(60);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("ttl", "a sandbox ends at its deadline with nobody there", &[], ttl),
        Case::new("ttl.extend", "a deadline moves, later and sooner", &["extend_ttl"], extend),
        Case::new(
            "ttl.idle",
            "an idle sandbox ends by itself, a busy one does not",
            &["idle_reap", "exec"],
            idle,
        ),
    ]
}

/// Waits until nothing under the tag is alive.
async fn dies(rig: &Rig, tag: &str, within: Duration) -> Outcome {
    let start = Instant::now();
    loop {
        // Each look through a new instance: nobody who made it is there.
        let found = rig.instance().list(&rig.subject.host, tag).await?;
        if found.iter().all(|found| !found.alive) {
            return Ok(());
        }
        if start.elapsed() > within {
            return fail(format!("{tag} is alive {:?} later: {found:?}", start.elapsed()));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// What ended by itself is told as ended. A backend that says when says a moment at which it can have been.
async fn gone(rig: &Rig, sandbox: &Sandbox, made_at: Timestamp) -> Outcome {
    let extension = rig.instance();
    let life = extension.life(&sandbox.handle).await?;
    ensure(!life.is_alive(), || "`life` says that it lives".into())?;
    let status = extension.status(&sandbox.handle).await?;
    ensure(!status.alive, || "its status says that it lives".into())?;
    for told in [life, status.life()] {
        let Life::Ended { at: Some(at) } = told else { continue };
        let (earliest, latest) = (made_at - CLOCKS, Timestamp::now() + CLOCKS);
        ensure((earliest..=latest).contains(&at), || format!("it says that it ended at {at}"))?;
    }
    let report = extension.teardown(&rig.subject.host, &sandbox.handle.tag, None).await?;
    ensure(report.is_clean(), || format!("its teardown left {:?}", report.left))?;
    let found = extension.list(&rig.subject.host, &sandbox.handle.tag).await?;
    ensure(found.is_empty(), || format!("after the teardown there is {found:?}"))
}

async fn ttl(rig: Arc<Rig>) -> Outcome {
    let (mut wish, made_at) = (rig.wish(), Timestamp::now());
    let end = Instant::now() + rig.subject.short_ttl;
    wish.request.expires_at = after(rig.subject.short_ttl);
    let sandbox = rig.provision(&rig.instance(), wish).await?;
    let mortal = Sandbox { extension: rig.instance(), handle: sandbox.handle.clone() };
    drop(sandbox);
    let left = end.saturating_duration_since(Instant::now());
    if left > Duration::from_millis(1_500) {
        tokio::time::sleep(left - Duration::from_millis(1_200)).await;
        let early = mortal.extension.life(&mortal.handle).await?.is_alive();
        // An answer that came late says nothing about the time before.
        ensure(early || Instant::now() >= end, || "it ended before its deadline".into())?;
    }
    tokio::time::sleep_until(end.into()).await;
    dies(&rig, &mortal.handle.tag, rig.subject.slack).await?;
    gone(&rig, &mortal, made_at).await
}

async fn extend(rig: Arc<Rig>) -> Outcome {
    let (mut wish, made_at) = (rig.wish(), Timestamp::now());
    let end = Instant::now() + rig.subject.short_ttl;
    wish.request.expires_at = after(rig.subject.short_ttl);
    let sandbox = rig.provision(&rig.instance(), wish).await?;
    sandbox.extension.extend(&sandbox.handle, after(Duration::from_secs(600))).await?;
    tokio::time::sleep_until((end + Duration::from_secs(2)).into()).await;
    let other = sandbox.through(rig.instance());
    ensure(other.extension.life(&other.handle).await?.is_alive(), || "it ended at its old deadline".into())?;
    other.extension.extend(&other.handle, after(Duration::from_secs(1))).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    dies(&rig, &other.handle.tag, rig.subject.slack).await?;
    gone(&rig, &other, made_at).await
}

async fn idle(rig: Arc<Rig>) -> Outcome {
    let (mut wish, made_at) = (rig.wish(), Timestamp::now());
    wish.request.idle_reap = Some(Dur::from_secs(3));
    let sandbox = rig.provision(&rig.instance(), wish).await?;
    for _ in 0..5 {
        sandbox.sh("true", &[]).await?;
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    // Looking at it is no use of it.
    dies(&rig, &sandbox.handle.tag, Duration::from_secs(3) + rig.subject.slack).await?;
    gone(&rig, &sandbox, made_at).await
}
