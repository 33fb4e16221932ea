//! After a command of a mirror: what it changed is brought down before its end is told.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use sandboxer_core::exec::{ExecControl, ExecOutcome, ExecSession, TtySize};
use sandboxer_core::{Result, SandboxId};
use sandboxer_store::Stored;
use tokio::sync::OnceCell;

use super::inside::Inside;
use super::{Direction, mirrored};
use crate::Engine;

impl Engine {
    /// The session of a mirror syncs when it ends. Any other session is given back as it is.
    pub(crate) fn sync_after_exec(
        &self,
        stored: &Stored,
        session: ExecSession,
        inside: impl FnOnce() -> Inside,
    ) -> ExecSession {
        let Some(folder) = mirrored(&stored.record) else { return session };
        let ExecSession { stdin, stdout, stderr, control } = session;
        let (engine, id) = (self.clone(), stored.record.id());
        let control = Synced { control, engine, id, inside: inside(), folder, synced: OnceCell::new() };
        ExecSession { stdin, stdout, stderr, control: Arc::new(control) }
    }
}

struct Synced {
    control: Arc<dyn ExecControl>,
    engine: Engine,
    id: SandboxId,
    inside: Inside,
    folder: PathBuf,
    synced: OnceCell<()>,
}

#[async_trait]
impl ExecControl for Synced {
    async fn wait(&self) -> Result<ExecOutcome> {
        let outcome = self.control.wait().await?;
        let sync = || async {
            let work = self.engine.sync_now(
                self.id,
                self.inside.clone(),
                self.folder.clone(),
                Direction::Down.into(),
            );
            // The command has ended as it has; what it changed stays in the sandbox until the next sync.
            if let Err(error) = work.await {
                tracing::error!(error = ?error, sandbox = %self.id, "the workspace could not be brought down");
                self.engine.tell_sync_failed(self.id, &error).await;
            }
        };
        self.synced.get_or_init(sync).await;
        Ok(outcome)
    }

    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        self.control.signal(signal, whole_tree).await
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        self.control.resize(size).await
    }
}
