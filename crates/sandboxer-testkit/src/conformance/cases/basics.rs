//! What an extension says about itself.

use std::sync::Arc;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, ensure};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("describe", "a description is stable and its id is valid", &[], describe)
            .about(&["self_hosted"])
            .safe(),
        Case::new("check", "a check answers, and what is missing says how to get it", &[], check).safe(),
        Case::new(
            "host_facts",
            "facts about the host are an object, or typed as unsupported",
            &[],
            host_facts,
        )
        .safe(),
        Case::new(
            "backend_logs",
            "the backend's own logs can be read to their end",
            &["backend_logs"],
            backend_logs,
        )
        .safe(),
    ]
}

async fn describe(rig: Arc<Rig>) -> Outcome {
    let (first, second) = (rig.extension.describe(), rig.instance().describe());
    ensure(first == second, || "two instances describe themselves differently".into())?;
    let name = first.id.strip_prefix("ext.").unwrap_or_default();
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure(!name.is_empty() && name.chars().all(valid), || {
        format!("`{}` is not like `ext.name-1`", first.id)
    })?;
    ensure(!first.summary.is_empty(), || "the summary is empty".into())?;
    ensure(["self-hosted", "metered"].contains(&first.pricing.as_str()), || {
        format!("`{}` is neither self-hosted nor metered", first.pricing)
    })?;
    ensure(first.capability.self_hosted == (first.pricing == "self-hosted"), || {
        "pricing and capability disagree on whose machine it is".into()
    })
}

async fn check(rig: Arc<Rig>) -> Outcome {
    let report = rig.extension.check(&rig.subject.host).await?;
    let missing: Vec<_> = report.items.iter().filter(|item| item.required && !item.ok).collect();
    ensure(report.ok, || format!("the backend cannot be used: {missing:?}"))?;
    ensure(missing.is_empty(), || format!("it is ok although {missing:?}"))?;
    ensure(report.items.iter().all(|item| !item.name.is_empty()), || "an item has no name".into())
}

async fn host_facts(rig: Arc<Rig>) -> Outcome {
    use sandboxer_core::ErrorKind::Unsupported;
    match rig.extension.host_facts(&rig.subject.host).await {
        Ok(facts) => ensure(facts.is_object(), || format!("{facts} is not an object")),
        Err(error) if error.kind() == Unsupported => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn backend_logs(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let logs = sandbox.extension.backend_logs(&sandbox.handle, false).await?;
    let read = crate::conformance::sandbox::all(logs);
    match tokio::time::timeout(std::time::Duration::from_secs(20), read).await {
        Ok(logs) => logs.map(drop),
        Err(_) => crate::conformance::rig::fail("without `follow` the logs do not end"),
    }
}
