//! Where the runtime keeps its files.

use crate::error::{AtStep as _, Result, RuntimeError};
use crate::spec::SandboxSpec;
use crate::sys;
use rustix::fs::{Mode, OFlags, open, openat};
use serde::{Deserialize, Serialize};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// `<root>/sandboxes/<id>/` for each sandbox, `<root>/base/<key>/` for the skeleton layers and `<root>/ended/<id>` for
/// each end that nobody had asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeDirs {
    pub root: PathBuf,
}

impl RuntimeDirs {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    pub fn sandbox(&self, id: &str) -> PathBuf {
        self.sandboxes().join(id)
    }

    pub fn base(&self) -> PathBuf {
        self.root.join("base")
    }
}

/// File names inside a sandbox's directory.
/// The lock, and in it the record and who holds it.
pub(crate) const LOCK: &str = "lock";
pub(crate) const SOCKET: &str = "ctl.sock";
/// The writable layer: what was changed over the layers below, as overlay keeps it.
pub(crate) const LAYER: &str = "layer";
/// Overlay's own place to work in.
pub(crate) const WORK: &str = "work";
pub(crate) const LOGS: &str = "logs";

/// The short form of an id for a process name: its last characters differ, the first ones are a time.
pub(crate) fn short_id(id: &str) -> &str {
    &id[id.len().saturating_sub(7)..]
}

/// Opens a sandbox's directory; its absence means that there is no such sandbox.
pub(crate) fn open_sandbox(dirs: &RuntimeDirs, id: &str) -> Result<OwnedFd> {
    match open(
        dirs.sandbox(id),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    ) {
        Ok(fd) => Ok(fd),
        Err(rustix::io::Errno::NOENT) => Err(RuntimeError::not_running(id)),
        Err(error) => Err(error).at("open", format!("cannot open the directory of sandbox `{id}`")),
    }
}

/// Whether a supervisor holds the lock of this directory.
pub(crate) fn is_alive(dir: &OwnedFd) -> bool {
    let lock = openat(dir, LOCK, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty());
    lock.is_ok_and(|lock| sys::lock::is_held(&lock).unwrap_or(false))
}

/// What is written about a sandbox before anything of it exists outside its directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) spec: SandboxSpec,
    /// Made next; whoever sweeps removes them.
    pub(crate) cgroups: Vec<PathBuf>,
}

/// Who to end when the supervisor is deaf or gone; added once both run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) supervisor: i32,
    pub(crate) supervisor_start: u64,
    pub(crate) init: i32,
    pub(crate) init_start: u64,
}

/// Reads what the lock file says: the record, and after it the holder. Either can be missing after a crash.
pub(crate) fn read_lock(dir: &OwnedFd) -> (Option<Record>, Option<Holder>) {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut text = Vec::new();
    if let Ok(fd) = openat(dir, LOCK, flags, Mode::empty()) {
        let _ = std::fs::File::from(fd).take(16 << 20).read_to_end(&mut text);
    }
    let mut lines = text.split(|byte| *byte == b'\n');
    let record = lines.next().and_then(|line| serde_json::from_slice(line).ok());
    (record, lines.next().and_then(|line| serde_json::from_slice(line).ok()))
}

/// Adds a line to the lock file.
pub(crate) fn append_to_lock(lock: &OwnedFd, line: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line).map_err(std::io::Error::other)?;
    text.push(b'\n');
    let mut rest = text.as_slice();
    while !rest.is_empty() {
        let written = rustix::io::write(lock, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

pub(crate) fn list(dirs: &RuntimeDirs) -> Result<Vec<crate::Found>> {
    let entries = match std::fs::read_dir(dirs.sandboxes()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).at("list", "cannot read the state directory"),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.at("list", "cannot read the state directory")?;
        let Ok(id) = entry.file_name().into_string() else { continue };
        if crate::spec::validate_id(&id).is_err() {
            continue;
        }
        // It may have ended since the directory was read.
        let Ok(dir) = open_sandbox(dirs, &id) else { continue };
        let (record, _) = read_lock(&dir);
        found.push(crate::Found {
            alive: is_alive(&dir),
            deadline_unix_ms: record.as_ref().map(|r| r.spec.deadline_unix_ms),
            labels: record.map(|r| r.spec.labels).unwrap_or_default(),
            id,
        });
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(found)
}
