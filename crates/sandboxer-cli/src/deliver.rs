//! Events on their way to hubs and webhooks when no server runs: a process of its own, so that no command waits for a hub.
//!
//! At most two of these processes with the same hubs live at once: one delivers, one waits to look once more after it.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use sandboxer_core::Result;
use sandboxer_engine::Engine;

use crate::compose::{self, Role, Settings};
use crate::status::{ExitStatus, io_error};

/// How long a hub or an endpoint that is down is tried; the next command tries again.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(250);

/// Starts the process that delivers, and forgets it.
pub(crate) fn start(settings: &Settings) {
    let Ok(exe) = std::env::current_exe() else { return };
    let mut command = Command::new(exe);
    command.arg("__deliver").arg("--home").arg(&settings.home).arg("--server").arg("");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // What cannot be started now is started by the next command: the events stay in the store.
    if let Err(error) = command.spawn() {
        tracing::debug!(%error, "events are not delivered now");
    }
}

/// The process itself: `sandboxer __deliver`.
pub(crate) async fn run(settings: &Settings) -> Result<ExitStatus> {
    // The terminal that started the command may go away.
    let _ = rustix::process::setsid();
    // Who has other hubs delivers beside: it could not do the other's work.
    let kind = settings.hubs_mark();
    let waiting = lock_file(&settings.home.join(format!("deliver{kind}.next.lock")))?;
    if flock(&waiting, FlockOperation::NonBlockingLockExclusive).is_err() {
        // Somebody waits already and will see our events.
        return Ok(ExitStatus::SUCCESS);
    }
    let delivering = lock_file(&settings.home.join(format!("deliver{kind}.lock")))?;
    flock(&delivering, FlockOperation::LockExclusive)
        .map_err(|source| io_error("the delivery lock cannot be taken", source.into()))?;
    drop(waiting);
    let engine = compose::engine(settings, Role::Deliverer).await?;
    let end = Instant::now() + PATIENCE;
    loop {
        engine.deliver_for(end.saturating_duration_since(Instant::now())).await?;
        if !has_more(&engine).await? || Instant::now() + PAUSE > end {
            return Ok(ExitStatus::SUCCESS);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether it is worth waiting: a hub has not everything yet, or something is due for a webhook. An endpoint that is
/// left alone for hours is not waited for.
async fn has_more(engine: &Engine) -> Result<bool> {
    for sink in engine.sink_names() {
        if engine.store().outbox_stats(sink).await?.pending > 0 {
            return Ok(true);
        }
    }
    Ok(!engine.store().webhooks_due(engine.now()).await?.is_empty())
}

fn lock_file(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|source| io_error(format!("{} cannot be opened", path.display()), source))
}
