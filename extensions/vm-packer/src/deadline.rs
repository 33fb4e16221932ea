//! The end of a machine at its deadline or when nobody uses it, whoever lives then: a guard process on this machine.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::exec::{ExecControl, ExecOutcome, ExecSession, TtySize};
use sandboxer_core::{Dur, ExecId, Result};
use sandboxer_remote::guard::FOLDER;
use sandboxer_remote::{Guard, Remote};

use crate::vm::Place;
use crate::vm::process::Process;

/// What the guard does before it removes the machine's folder.
const END: &str = include_str!("vm/end.sh");

fn guard(place: &Place) -> Guard {
    Guard::new(&Remote::local(), place.folder().display().to_string())
}

pub(crate) async fn arm(place: &Place, until: Timestamp, idle: Option<Dur>) -> Result<()> {
    guard(place).install(until, idle.map(Dur::as_std), END).await
}

pub(crate) async fn extend(place: &Place, until: Timestamp) -> Result<()> {
    guard(place).extend(until).await
}

/// Ends the guard; a folder without one is no error.
pub(crate) async fn disarm(place: &Place) {
    if place.exists()
        && let Err(error) = guard(place).stop().await
    {
        tracing::warn!("the guard of {} does not end: {error:?}", place.tag);
    }
}

/// Something used the machine. The guard looks at the file's time.
pub(crate) fn touch(place: &Place) {
    let _ = std::fs::write(place.folder().join(FOLDER).join("activity"), "\n");
}

/// Keeps a machine from being idle as long as this lives: the guard counts what is noted here as use while this process is
/// there.
pub(crate) struct InUse {
    note: PathBuf,
    place: Place,
}

impl InUse {
    pub(crate) fn new(place: &Place, name: &str) -> Self {
        let note = place.folder().join(FOLDER).join("running").join(name);
        if let Some(us) = i32::try_from(std::process::id()).ok().and_then(Process::of) {
            let _ = std::fs::write(&note, format!("{} {}\n", us.pid, us.started));
        }
        Self { note, place: place.clone() }
    }

    fn end(&self) {
        let _ = std::fs::remove_file(&self.note);
        touch(&self.place);
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.end();
    }
}

/// A session during which the machine is in use.
pub(crate) fn busy(place: &Place, exec: ExecId, session: ExecSession) -> ExecSession {
    let control = Busy { inner: session.control, in_use: InUse::new(place, &exec.to_string()) };
    ExecSession { control: Arc::new(control), ..session }
}

struct Busy {
    inner: Arc<dyn ExecControl>,
    in_use: InUse,
}

#[async_trait]
impl ExecControl for Busy {
    async fn wait(&self) -> Result<ExecOutcome> {
        let outcome = self.inner.wait().await;
        self.in_use.end();
        outcome
    }

    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        self.inner.signal(signal, whole_tree).await
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        self.inner.resize(size).await
    }
}
