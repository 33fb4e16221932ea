//! The end of a mirror: its last changes are brought down before it is taken down, and what could not be is kept.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sandboxer_core::event::NewEvent;
use sandboxer_core::extension::Life;
use sandboxer_core::{Error, ErrorKind, Result, SandboxId, State};
use sandboxer_store::{Books, LeaseChange, Stored, Update};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::inside::Inside;
use super::mirror::private_file;
use super::{Direction, SyncReport, io_error, mirrored};
use crate::Engine;

/// How long the end of a sandbox waits for its last changes.
const LAST_SYNC: Duration = Duration::from_secs(60);
/// How long before its end a running server looks after a mirror once more.
pub(crate) const NEAR_THE_END: sandboxer_core::Dur = sandboxer_core::Dur::from_secs(4);
/// What is kept when they cannot be brought down.
const RESCUED: &str = "workspace.tar";

impl Engine {
    /// Brings the last changes of a mirror down. Its end does not depend on it: what cannot be brought down is kept as an
    /// archive where possible, and told.
    pub(crate) async fn last_sync(&self, stored: &Stored) {
        let Some(folder) = mirrored(&stored.record) else { return };
        if !matches!(stored.record.state(), State::Ready | State::Active) {
            return;
        }
        let Some(handle) = stored.record.handle.clone() else { return };
        let Ok(extension) = self.extension_of(&stored.record).await else { return };
        if !self.life(&stored.record, &handle).await.is_ok_and(Life::is_alive) {
            return;
        }
        let id = stored.record.id();
        let inside = Inside { extension, handle };
        let work = self.sync_now(id, inside.clone(), folder, Direction::Down.into());
        let late = || Error::new(ErrorKind::Timeout, "the last sync took too long");
        let error = match tokio::time::timeout(LAST_SYNC, work).await.unwrap_or_else(|_| Err(late())) {
            Ok(_) => return,
            Err(error) => error,
        };
        let rescued = match tokio::time::timeout(LAST_SYNC, self.rescue(id, &inside)).await {
            Ok(Ok(path)) => Some(path.display().to_string()),
            Ok(Err(_)) | Err(_) => None,
        };
        tracing::error!(error = ?error, sandbox = %id, rescued, "the last changes could not be brought down");
        let data = json!({ "reason": error.to_string(), "kept": rescued });
        self.tell(id, "sandbox.workspace_not_synced", data).await;
    }

    async fn rescue(&self, id: SandboxId, inside: &Inside) -> Result<PathBuf> {
        let path = self.places()?.mirror(id).join(RESCUED);
        let mut from = inside.extension.archive_get(&inside.handle, ".").await?;
        let failed = |source| io_error("the workspace cannot be kept", source);
        let mut to = tokio::fs::File::from_std(private_file(&path).map_err(failed)?);
        tokio::io::copy(&mut from, &mut to).await.map_err(failed)?;
        to.flush().await.map_err(failed)?;
        Ok(path)
    }

    /// Mirrors that are about to end by themselves are synced while they still live.
    pub(crate) async fn sync_before_expiry(&self) -> Result<()> {
        let (now, soon) = (self.now(), NEAR_THE_END.after(self.now()));
        for stored in self.inner.store.overdue(soon).await? {
            if stored.record.sandbox.expires_at > now {
                self.last_sync(&stored).await;
            }
        }
        Ok(())
    }

    /// Removes what is kept for a workspace, but for what its owner still has to look at.
    pub(crate) fn forget_workspace(&self, id: SandboxId) {
        let Ok(places) = self.places() else { return };
        let _ = std::fs::remove_file(places.seed(id));
        let folder = places.mirror(id);
        for name in ["state.json", "state.json.new", "fetched.tar", "sent.tar", "lock"] {
            let _ = std::fs::remove_file(folder.join(name));
        }
        // Only an empty one goes: conflicts and rescued files stay.
        let _ = std::fs::remove_dir(Path::new(&folder));
    }

    pub(super) async fn tell_conflicts(&self, id: SandboxId, report: &SyncReport) {
        let paths: Vec<&str> = report.conflicts.iter().map(|conflict| conflict.path.as_str()).collect();
        tracing::error!(sandbox = %id, ?paths, "both sides changed these files of the workspace; neither was touched");
        let data = json!({ "folder": report.folder, "conflicts": report.conflicts });
        self.tell(id, "sandbox.workspace_conflict", data).await;
    }

    pub(super) async fn tell_sync_failed(&self, id: SandboxId, error: &Error) {
        let data = json!({ "reason": error.chain().join(": "), "kept": null });
        self.tell(id, "sandbox.workspace_not_synced", data).await;
    }

    /// Records a fact about a sandbox, whoever else is changing its row.
    async fn tell(&self, id: SandboxId, name: &str, data: serde_json::Value) {
        for _ in 0..8 {
            let Ok(Some(stored)) = self.inner.store.get(id).await else { return };
            let update = Update {
                record: stored.record,
                expected_version: stored.version,
                steps: Vec::new(),
                facts: vec![NewEvent::fact(name, self.now(), data.clone())],
                lease: LeaseChange::Keep,
                books: Books::default(),
            };
            match self.inner.store.update(update).await {
                Err(error) if error.kind() == ErrorKind::Conflict => continue,
                Err(error) => {
                    tracing::warn!(error = ?error, sandbox = %id, "a fact about a workspace could not be recorded");
                    return;
                }
                Ok(_) => return,
            }
        }
    }
}
