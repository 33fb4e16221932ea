//! A creator that breaks off in the middle leaves nothing that cannot be found and removed.

use std::sync::Arc;
use std::time::Duration;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, Wish, ensure};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "crash.provision",
            "a provision that breaks off is found by its tag and removed",
            &[],
            provision,
        ),
        Case::new("crash.teardown", "a teardown that breaks off can be finished", &[], teardown),
    ]
}

/// Moments spread over `time`, early ones first.
fn moments(time: Duration, count: usize) -> impl Iterator<Item = Duration> {
    let parts = u32::try_from(count.max(1)).unwrap_or(1);
    (0..parts).map(move |part| time * part / parts)
}

async fn provision(rig: Arc<Rig>) -> Outcome {
    let host = rig.subject.host.clone();
    let time = rig.provision_time().await?;
    let mut last = None;
    for moment in moments(time, rig.subject.crashes) {
        let wish = rig.wish();
        {
            let extension = rig.instance();
            let request = wish.request.clone();
            // Dropped at the moment, whatever it was doing.
            let _ = tokio::time::timeout(moment, extension.provision(request)).await;
        }
        let extension = rig.instance();
        let tag = wish.request.tag.clone();
        let found = extension.list(&host, &tag).await?;
        ensure(found.len() <= 1 && found.iter().all(|found| found.tag == tag), || {
            format!("`{tag}` finds {found:?}")
        })?;
        let report = extension.teardown(&host, &tag, None).await?;
        ensure(report.is_clean(), || format!("broken off after {moment:?}, it left {:?}", report.left))?;
        let found = extension.list(&host, &tag).await?;
        ensure(found.is_empty(), || format!("broken off after {moment:?} and removed, there is {found:?}"))?;
        last = Some(wish);
    }
    let Some(Wish { request }) = last else { return Ok(()) };
    let sandbox = rig.provision(&rig.instance(), Wish { request }).await?;
    if rig.capability.exec {
        sandbox.sh("true", &[]).await?;
    }
    sandbox.teardown().await
}

async fn teardown(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.own().await?;
    let (host, tag) = (rig.subject.host.clone(), sandbox.handle.tag.clone());
    for moment in [0, 1, 5, 30] {
        let extension = rig.instance();
        let _ =
            tokio::time::timeout(Duration::from_millis(moment), extension.teardown(&host, &tag, None)).await;
    }
    let extension = rig.instance();
    let report = extension.teardown(&host, &tag, None).await?;
    ensure(report.is_clean(), || format!("it left {:?}", report.left))?;
    let found = extension.list(&host, &tag).await?;
    ensure(found.is_empty(), || format!("there is still {found:?}"))
}
