//! What is done to a machine that runs: looked at, stopped and continued, checkpointed.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::exec::BoxRead;
use sandboxer_core::extension::{BackendStatus, CleanupReport, Usage};
use sandboxer_core::snapshot::Taken;
use sandboxer_core::{ErrorKind, Result, SnapshotId};
use sandboxer_remote::Command;
use serde_json::{Value, json};

use crate::deadline;
use crate::files::blocking;
use crate::machines::Machines;
use crate::vm::{Place, Qmp, Record, console, taken};

/// How long a guest may take to write its caches to its disk.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

impl Machines {
    pub(crate) async fn status(&self, tag: &str) -> Result<BackendStatus> {
        let (place, record) = match self.running(tag) {
            Ok(running) => running,
            Err(error) if error.kind() == ErrorKind::SandboxNotFound => {
                return Ok(BackendStatus::ended(None, Value::Null));
            }
            Err(error) => return Err(error),
        };
        let state = match Qmp::connect(&place.socket()).await {
            Ok(mut qmp) => qmp.state().await.unwrap_or_else(|_| "unknown".into()),
            Err(_) => "unknown".into(),
        };
        let (memory_bytes, cpu_usec) = record.process.usage();
        let disk_bytes = place.disk().metadata().ok().map(|data| data.blocks() * 512);
        let detail = json!({
            "state": state,
            "accelerator": record.accelerator,
            "image": record.image.hash,
            "cpus": record.size.cpus,
            "memory_mb": record.size.memory_mb,
            "disk_bytes": record.size.disk_bytes,
            "layers": record.layers.len(),
            "ssh": format!("{}@127.0.0.1:{}", record.ssh_user, record.port),
            "process": record.process.pid,
            "folder": place.folder().display().to_string(),
        });
        let usage = Usage { memory_bytes, cpu_usec, pids: None, disk_bytes };
        Ok(BackendStatus::alive(Some(usage), detail))
    }

    pub(crate) async fn extend(&self, tag: &str, until: Timestamp) -> Result<()> {
        let (place, _) = self.running(tag)?;
        deadline::extend(&place, until).await
    }

    pub(crate) fn console(&self, tag: &str, follow: bool) -> Result<BoxRead> {
        let (place, record) = self.running(tag)?;
        Ok(console::read(&place, Some(record.process), follow))
    }

    /// Stops the processors where they are.
    pub(crate) async fn pause(&self, tag: &str) -> Result<()> {
        let (place, _) = self.running(tag)?;
        Qmp::connect(&place.socket()).await?.execute("stop", Value::Null).await.map(drop)
    }

    pub(crate) async fn resume(&self, tag: &str) -> Result<()> {
        let (place, _) = self.running(tag)?;
        Qmp::connect(&place.socket()).await?.execute("cont", Value::Null).await.map(drop)
    }

    /// Best effort: a guest that does not answer is stopped as it is, like one whose power fails.
    async fn sync(&self, place: &Place, record: &Record) {
        let Ok(guest) = self.guest_of(record, place) else { return };
        let synced =
            guest.remote.check("writing the guest's caches", Command::new(["sync"]).timeout(SYNC_LIMIT));
        if let Err(error) = synced.await {
            tracing::warn!("the disk of {} is taken without what its caches hold: {error:?}", record.tag);
        }
    }

    pub(crate) async fn snapshot(&self, tag: &str, id: SnapshotId) -> Result<Taken> {
        if let Some((manifest, _)) = self.snapshots().get(&id.to_string())? {
            return Ok(taken(id, &manifest));
        }
        let (place, record) = self.running(tag)?;
        let mut qmp = Qmp::connect(&place.socket()).await?;
        let running = qmp.state().await? == "running";
        if !running {
            // A paused machine goes on for the moment that its caches take to reach its disk.
            qmp.execute("cont", Value::Null).await?;
        }
        self.sync(&place, &record).await;
        qmp.execute("stop", Value::Null).await?;
        // Whoever drops this future in the middle must not leave the machine stopped.
        let resume = Resume { socket: running.then(|| place.socket()) };
        let result = self.snapshots().take(id, &record, &place).await;
        resume.now(&mut qmp).await?;
        result
    }

    pub(crate) async fn snapshot_delete(&self, id: SnapshotId) -> Result<CleanupReport> {
        let snapshots = self.snapshots().clone();
        let id = id.to_string();
        let path = snapshots.path(&id).display().to_string();
        let there = blocking(move || snapshots.delete(&id)).await?;
        let removed = if there { vec![format!("directory {path}")] } else { Vec::new() };
        Ok(CleanupReport { removed, left: Vec::new() })
    }
}

/// Lets a machine go on that was stopped for a moment.
struct Resume {
    socket: Option<std::path::PathBuf>,
}

impl Resume {
    async fn now(mut self, qmp: &mut Qmp) -> Result<()> {
        if self.socket.take().is_some() {
            qmp.execute("cont", Value::Null).await?;
        }
        Ok(())
    }
}

impl Drop for Resume {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Ok(mut qmp) = Qmp::connect(&socket).await {
                    let _ = qmp.execute("cont", Value::Null).await;
                }
            });
        }
    }
}
