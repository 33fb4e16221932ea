//! A workspace on a machine that is already running: a folder of the sandbox's own, reached by SSH.
//!
//! What is on the other machine is noted here before it is made there, so that a crash in between leaves nothing that
//! cannot be found.

mod isolation;
mod note;

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use sandboxer_core::extension::{BackendStatus, CleanupReport, Found, Handle, Leftover, ProvisionRequest};
use sandboxer_core::{Error, ErrorKind, HostDirectory, Result};
use sandboxer_remote::guard::KILL_MARKED;
use sandboxer_remote::{Command, Guard, Remote, quote};

use crate::guest::Guest;
use note::{Note, Notes};

/// Every process of the sandbox has it in its environment, with the tag.
const MARKER: &str = "SANDBOXER_TAG";
/// Makes the folder `$1` below the home and says where it is.
const MAKE: &str =
    r#"umask 077; cd && mkdir -p -- ".sandboxer/vms/$1/workspace" && cd -P -- ".sandboxer/vms/$1" && pwd -P"#;
/// Removes the folder `$1`, whatever modes it has.
const REMOVE: &str = r#"[ -e "$1" ] || exit 0; chmod -R u+rwX -- "$1" 2>/dev/null; rm -rf -- "$1""#;

pub(crate) struct Attached {
    hosts: Arc<dyn HostDirectory>,
    state_dir: PathBuf,
    notes: Notes,
}

impl Attached {
    pub(crate) fn new(hosts: Arc<dyn HostDirectory>, state_dir: PathBuf) -> Self {
        Self { hosts, notes: Notes::new(state_dir.join("attached")), state_dir }
    }

    pub(crate) fn is(&self, tag: &str) -> bool {
        self.notes.has(tag)
    }

    async fn remote(&self, vm: &str) -> Result<Remote> {
        Remote::open(&self.hosts.host(vm).await?, &self.state_dir)
    }

    pub(crate) async fn provision(&self, vm: &str, request: &ProvisionRequest) -> Result<Handle> {
        if request.from.is_some() {
            return Err(Error::unsupported(crate::ID, "a snapshot on a machine that it did not boot"));
        }
        let remote = self.remote(vm).await?;
        remote.connect().await?;
        if let Some(note) = self.notes.read(&request.tag)?.filter(|note| note.complete) {
            return Ok(note.handle());
        }
        let (effective, controls) = isolation::of(&remote, &request.spec).await?;
        let degraded = isolation::judge(effective, &request.spec, vm)?;
        let mut note = Note::new(&request.tag, vm, request.spec.variables.clone());
        note.effective = effective;
        note.controls = controls;
        note.degraded = degraded;
        self.notes.write(&note)?;
        let made = async {
            let said = remote
                .check("making the sandbox's folder", Command::script(MAKE, [request.tag.clone()]))
                .await?;
            note.folder = said.text();
            self.notes.write(&note)?;
            let mark = quote(&format!("{MARKER}={}", request.tag));
            let end = format!("{KILL_MARKED}\nkill_marked {mark}\n");
            let idle = request.idle_reap.map(sandboxer_core::Dur::as_std);
            Guard::new(&remote, note.folder.clone()).install(request.expires_at, idle, &end).await?;
            if let Some(seed) = &request.seed {
                let tar = tokio::fs::File::open(seed)
                    .await
                    .map_err(|source| crate::files::failed("read", seed, source))?;
                remote.files(note.workspace()).tar_in(".", Box::pin(tar)).await?;
            }
            note.complete = true;
            self.notes.write(&note)
        };
        if let Err(error) = made.await {
            let _ = self.teardown(&request.tag).await;
            return Err(error);
        }
        Ok(note.handle())
    }

    /// The note of a sandbox that was made completely.
    fn note(&self, tag: &str) -> Result<Note> {
        self.notes.read(tag)?.filter(|note| note.complete).ok_or_else(|| gone(tag))
    }

    pub(crate) async fn guest(&self, tag: &str) -> Result<Guest> {
        let note = self.note(tag)?;
        let remote = self.remote(&note.vm).await?;
        if !Guard::new(&remote, note.folder.clone()).is_alive().await? {
            return Err(gone(tag));
        }
        let mut variables = note.variables.clone();
        variables.insert(MARKER.into(), tag.to_owned());
        Ok(Guest {
            remote,
            workspace: note.workspace(),
            root: note.workspace(),
            variables,
            is_root: false,
            endpoint: format!("{}:{}", note.vm, note.workspace()),
            guarded: Some(note.folder),
        })
    }

    pub(crate) async fn is_alive(&self, tag: &str) -> Result<bool> {
        match self.guest(tag).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::SandboxNotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn status(&self, tag: &str) -> Result<BackendStatus> {
        let alive = self.is_alive(tag).await?;
        let detail =
            self.notes.read(tag)?.map(|note| serde_json::json!({ "vm": note.vm, "folder": note.folder }));
        let detail = detail.unwrap_or_default();
        Ok(if alive { BackendStatus::alive(None, detail) } else { BackendStatus::ended(None, detail) })
    }

    pub(crate) async fn extend(&self, tag: &str, until: Timestamp) -> Result<()> {
        let note = self.note(tag)?;
        let remote = self.remote(&note.vm).await?;
        let moved = Guard::new(&remote, note.folder).extend(until).await;
        moved.map_err(|error| if error.kind() == ErrorKind::NotFound { gone(tag) } else { error })
    }

    pub(crate) async fn teardown(&self, tag: &str) -> Result<CleanupReport> {
        let mut report = CleanupReport::default();
        let Some(note) = self.notes.read(tag)? else { return Ok(report) };
        let remote = match self.remote(&note.vm).await {
            Ok(remote) => remote,
            Err(error) if error.kind() == ErrorKind::HostNotFound => {
                let what = format!("folder of {tag} on {}", note.vm);
                let reason = "the machine is not registered any more, so that nobody can reach it".into();
                report.left.push(Leftover { what, reason });
                return Ok(report);
            }
            Err(error) => return Err(error),
        };
        // Where a crash came before the answer, the folder is known by its name all the same.
        let folder = match note.folder.as_str() {
            "" => {
                remote.check("finding the home", Command::script(r#"cd && pwd -P"#, [""; 0])).await?.text()
                    + "/.sandboxer/vms/"
                    + tag
            }
            known => known.to_owned(),
        };
        Guard::new(&remote, folder.clone()).stop().await?;
        remote.kill_marked(MARKER, tag).await?;
        remote.check("removing the sandbox's folder", Command::script(REMOVE, [folder.clone()])).await?;
        self.notes.remove(tag)?;
        report.removed.push(format!("directory {folder} on {}", note.vm));
        Ok(report)
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Found>> {
        let mut out = Vec::new();
        for note in self.notes.all(prefix)? {
            // A machine that does not answer now is no proof that the sandbox is gone.
            let alive = note.complete && self.is_alive(&note.tag).await.unwrap_or(true);
            let parts = vec![format!("directory {} on {}", note.folder, note.vm)];
            out.push(Found { tag: note.tag, alive, parts });
        }
        Ok(out)
    }
}

fn gone(tag: &str) -> Error {
    Error::new(ErrorKind::SandboxNotFound, format!("the workspace of {tag} is not there any more"))
}
