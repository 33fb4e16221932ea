//! Paths that try to leave the sandbox. A folder on this machine is the prey; it is left as it was.

use std::path::Path;
use std::sync::Arc;

use sandboxer_core::isolation::IsolationLevel;

use super::Case;
use crate::conformance::rig::{Outcome, Rig, Stop, ensure};
use crate::conformance::sandbox::Sandbox;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(
        "files.escape",
        "no `..` and no link leads to the machine's own files",
        &["files"],
        escape,
    )]
}

/// A folder of this machine with one file in it.
pub(super) struct Prey {
    folder: tempfile::TempDir,
}

const SECRET: &[u8] = b"of the machine, not of the sandbox";

impl Prey {
    pub(super) fn new() -> Outcome<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir()?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777))?;
        std::fs::write(folder.path().join("secret"), SECRET)?;
        std::fs::set_permissions(folder.path().join("secret"), std::fs::Permissions::from_mode(0o666))?;
        Ok(Self { folder })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Nothing was added and nothing changed.
    pub(super) fn untouched(&self) -> Outcome {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path())? {
            names.push(entry?.file_name());
        }
        ensure(names == ["secret"], || format!("the machine's folder has {names:?}"))?;
        let data = std::fs::read(self.path().join("secret"))?;
        ensure(data == SECRET, || "the machine's file was changed".into())
    }
}

async fn escape(rig: Arc<Rig>) -> Outcome {
    let sandbox = rig.shared().await?;
    let prey = Prey::new()?;
    let outside = prey.path().display().to_string();
    let up = "../".repeat(12);
    let mut ways = vec![format!("{up}{outside}"), format!("escape/{up}{outside}")];
    if rig.capability.isolation >= IsolationLevel::Container {
        ways.push(outside.clone());
    }
    if rig.capability.exec {
        let line = "mkdir -p escape && ln -sfn \"$1\" escape/absolute && ln -sfn \"$2\" escape/relative";
        sandbox.sh(line, &[&outside, &format!("{up}{outside}")]).await?;
        sandbox.sh("ln -sfn \"$1/secret\" escape/file", &[&outside]).await?;
        ways.extend(["escape/absolute".to_owned(), "escape/relative".to_owned()]);
        leak(&sandbox, "escape/file").await?;
        let _ = sandbox.write("escape/file", 0o644, b"changed").await;
        prey.untouched()?;
    }
    for way in ways {
        leak(&sandbox, &format!("{way}/secret")).await?;
        // Each may fail or happen inside; the machine's folder tells whether it left.
        let (extension, handle) = (&sandbox.extension, &sandbox.handle);
        let _ = sandbox.write(&format!("{way}/secret"), 0o644, b"changed").await;
        let _ = sandbox.write(&format!("{way}/planted"), 0o644, b"planted").await;
        let _ = extension.file_mkdir(handle, &format!("{way}/made")).await;
        let _ = extension.file_rename(handle, &format!("{way}/secret"), &format!("{way}/moved")).await;
        let _ = extension.file_delete(handle, &format!("{way}/secret"), false).await;
        prey.untouched().map_err(|stop| match stop {
            Stop::Failed(why) => Stop::Failed(format!("through {way}: {why}")),
            other => other,
        })?;
    }
    Ok(())
}

/// The machine's file must not come out; anything else, an error too, is right.
async fn leak(sandbox: &Sandbox, path: &str) -> Outcome {
    let read = sandbox.read(path).await.unwrap_or_default();
    ensure(read != SECRET, || format!("{path} gives the machine's own file"))
}
