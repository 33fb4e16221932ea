//! Workspaces: what a sandbox's folder starts with, and how a mirror of it is kept.
//!
//! Everything about folders is in `sandboxer-workspace`; here is who may name which folder, when it is packed, and the
//! traffic with the sandbox. That goes through `exec` and `archive_put` alone, so it works with every extension.

mod apply;
mod ending;
mod exec;
mod inside;
mod listing;
mod mirror;
#[cfg(test)]
mod portable_tests;
mod report;
mod seed;
mod source;
mod sync;

use std::path::PathBuf;

use sandboxer_core::profile::{WorkspaceAccess, WorkspaceMode};
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::{Error, ErrorKind, Result, SandboxId};

use crate::Engine;

pub(crate) use inside::Inside;
pub use report::{ConflictView, SyncReport};
pub use sync::{Direction, Prefer, SyncOptions};

/// Where the engine keeps seeds on their way and the state of mirrors.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    home: PathBuf,
}

impl Places {
    fn staging(&self) -> PathBuf {
        self.home.join("staging")
    }

    fn seed(&self, id: SandboxId) -> PathBuf {
        self.staging().join(format!("{id}.tar"))
    }

    fn mirrors(&self) -> PathBuf {
        self.home.join("mirrors")
    }

    fn mirror(&self, id: SandboxId) -> PathBuf {
        self.mirrors().join(id.to_string())
    }
}

impl Engine {
    /// Gives the engine the folder in which seeds are packed and mirrors are kept. Without it, workspaces have no source.
    pub fn keep_workspaces_in(&self, home: impl Into<PathBuf>) {
        let _ = self.inner.workspaces.set(Places { home: home.into() });
    }

    pub(crate) fn places(&self) -> Result<&Places> {
        self.inner.workspaces.get().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "this engine has no place to keep workspaces in")
        })
    }
}

/// The folder that a mirror follows; nothing for every other sandbox. A workspace that nobody can write has nothing to
/// bring back and takes nothing more.
pub(crate) fn mirrored(record: &SandboxRecord) -> Option<PathBuf> {
    let workspace = &record.spec.workspace;
    let is_mirror = workspace.mode == WorkspaceMode::Mirror && workspace.access == WorkspaceAccess::Rw;
    record.spec.workspace_source.as_ref().filter(|_| is_mirror).map(PathBuf::from)
}

/// Work with the disk, off the executor.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|source| {
        Error::new(ErrorKind::Internal, "work on a workspace broke off").with_source(source)
    })?
}

pub(crate) fn io_error(message: impl Into<String>, source: std::io::Error) -> Error {
    let kind = match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::StoreFailed,
    };
    Error::new(kind, message).with_source(source)
}
