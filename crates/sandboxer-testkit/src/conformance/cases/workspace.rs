//! What the workspace starts with, and whether it may be written.

use std::sync::Arc;

use sandboxer_core::profile::WorkspaceAccess;

use super::Case;
use super::archive::tree;
use crate::conformance::rig::{Outcome, Rig, ensure};
use crate::conformance::sandbox::{Sandbox, script};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("workspace.seed", "the workspace starts with what it was given", &["exec"], seed),
        Case::new(
            "workspace.ro",
            "a read-only workspace cannot be written",
            &["exec", "workspace_access"],
            read_only,
        ),
    ]
}

async fn seeded(rig: &Rig, access: WorkspaceAccess) -> Outcome<Sandbox> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("seed.tar");
    std::fs::write(&path, tree()?)?;
    let mut wish = rig.wish();
    wish.request.seed = Some(path);
    wish.request.spec.workspace.access = access;
    rig.provision(&rig.instance(), wish).await
}

async fn seed(rig: Arc<Rig>) -> Outcome {
    let sandbox = seeded(&rig, WorkspaceAccess::Rw).await?;
    let seen =
        sandbox.sh("./run.sh; readlink link; cat \"sub/it's a \\\"name\\\"\"; wc -c < link", &[]).await?;
    ensure(seen == "seeded\nsub/binary\nnamed300000", || format!("the workspace has {seen:?}"))?;
    sandbox.sh("echo more > sub/more && rm link", &[]).await?;
    sandbox.teardown().await
}

async fn read_only(rig: Arc<Rig>) -> Outcome {
    let sandbox = seeded(&rig, WorkspaceAccess::Ro).await?;
    ensure(sandbox.sh("./run.sh", &[]).await? == "seeded", || "it cannot be read".into())?;
    for line in ["echo x > new", "echo x > run.sh", "rm -f link", "mkdir folder", "chmod 777 run.sh"] {
        let output = sandbox.run(script(line, &[])).await?;
        ensure(output.outcome.exit_code != 0, || format!("`{line}` succeeds"))?;
    }
    if rig.capability.files {
        ensure(sandbox.write("new", 0o644, b"x").await.is_err(), || "a file can be written".into())?;
    }
    sandbox.teardown().await
}
