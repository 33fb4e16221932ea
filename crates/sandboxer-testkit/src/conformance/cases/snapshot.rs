//! Checkpoints, and sandboxes that start from them.

use std::sync::Arc;

use sandboxer_core::SnapshotId;
use sandboxer_core::extension::Extension;
use sandboxer_core::snapshot::Taken;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, ensure};
use crate::conformance::sandbox::Sandbox;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "snapshot",
            "a snapshot is found by its tag and deleted, twice",
            &["snapshot", "exec"],
            take,
        ),
        Case::new(
            "restore",
            "a sandbox from a snapshot has the old state",
            &["snapshot", "restore", "exec"],
            restore,
        ),
        Case::new(
            "fork",
            "two sandboxes from one snapshot go their own ways",
            &["snapshot", "fork", "exec"],
            fork,
        ),
    ]
}

async fn taken(rig: &Rig) -> Outcome<(Sandbox, SnapshotId, Taken)> {
    let sandbox = rig.own().await?;
    sandbox
        .sh("mkdir -p kept/sub && echo old > kept/sub/file && ln -s sub/file kept/link && sync", &[])
        .await?;
    let id = rig.snapshot_id();
    let taken = sandbox.extension.snapshot(&sandbox.handle, id).await?;
    ensure(taken.snapshot_id == id, || "the snapshot has another id".into())?;
    ensure(sandbox.sh("cat kept/link", &[]).await? == "old", || "the sandbox does not go on".into())?;
    Ok((sandbox, id, taken))
}

async fn delete(rig: &Rig, extension: &Arc<dyn Extension>, id: SnapshotId, taken: &Taken) -> Outcome {
    let host = rig.subject.host.as_str();
    for taken in [Some(taken), Some(taken), None] {
        let report = extension.snapshot_delete(host, id, taken).await?;
        ensure(report.is_clean(), || format!("a deletion left {:?}", report.left))?;
    }
    let found = extension.list(host, &id.to_string()).await?;
    ensure(found.is_empty(), || format!("a deleted snapshot is still listed: {found:?}"))
}

async fn take(rig: Arc<Rig>) -> Outcome {
    let (sandbox, id, taken) = taken(&rig).await?;
    let again = sandbox.extension.snapshot(&sandbox.handle, id).await?;
    ensure(again == taken, || format!("the same id gives {taken:?} and {again:?}"))?;
    let other = rig.instance();
    let (host, tag) = (rig.subject.host.as_str(), id.to_string());
    let found = other.list(host, &tag).await?;
    let listed = found.len() == 1 && found[0].tag == tag && found[0].alive && !found[0].parts.is_empty();
    ensure(listed, || format!("`{tag}` finds {found:?}"))?;
    let sandboxes = other.list(host, "sbx_").await?;
    ensure(sandboxes.iter().all(|found| found.tag != tag), || "a snapshot is listed as a sandbox".into())?;
    delete(&rig, &other, id, &taken).await?;
    let unknown = other.snapshot_delete(host, SnapshotId::generate(), None).await?;
    ensure(unknown.is_clean() && unknown.removed.is_empty(), || format!("an unknown one: {unknown:?}"))?;
    ensure(sandbox.sh("cat kept/link", &[]).await? == "old", || "a deletion harmed the sandbox".into())?;
    sandbox.teardown().await
}

async fn start(rig: &Rig, taken: &Taken) -> Outcome<Sandbox> {
    let mut wish = rig.wish();
    wish.request.from = Some(taken.clone());
    rig.provision(&rig.instance(), wish).await
}

async fn restore(rig: Arc<Rig>) -> Outcome {
    let (sandbox, id, taken) = taken(&rig).await?;
    sandbox.sh("echo new > kept/sub/file && echo more > kept/more", &[]).await?;
    // The sandbox may be gone when somebody goes back to its snapshot.
    sandbox.teardown().await?;
    let restored = start(&rig, &taken).await?;
    let seen = restored.sh("cat kept/link; test -e kept/more && echo more; true", &[]).await?;
    ensure(seen == "old", || format!("the restored sandbox has {seen:?}"))?;
    restored.sh("echo changed > kept/sub/file", &[]).await?;
    restored.teardown().await?;
    let again = start(&rig, &taken).await?;
    let seen = again.sh("cat kept/link", &[]).await?;
    ensure(seen == "old", || format!("a second restore has {seen:?}"))?;
    again.teardown().await?;
    delete(&rig, &again.extension, id, &taken).await
}

async fn fork(rig: Arc<Rig>) -> Outcome {
    let (sandbox, id, taken) = taken(&rig).await?;
    let (one, two) = tokio::join!(start(&rig, &taken), start(&rig, &taken));
    let (one, two) = (one?, two?);
    one.sh("echo one > kept/sub/file", &[]).await?;
    two.sh("echo two > kept/sub/file", &[]).await?;
    for (fork, expected) in [(&one, "one"), (&two, "two"), (&sandbox, "old")] {
        let seen = fork.sh("cat kept/link", &[]).await?;
        ensure(seen == expected, || format!("`{expected}` became `{seen}`"))?;
    }
    for fork in [&one, &two, &sandbox] {
        fork.teardown().await?;
    }
    delete(&rig, &sandbox.extension, id, &taken).await
}
