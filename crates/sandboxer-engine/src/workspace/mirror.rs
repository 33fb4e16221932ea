//! What is kept of a mirror between two syncs: the last agreement, and stamps that spare reading what did not change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_workspace::{Cache, Manifest, Scan};
use serde::{Deserialize, Serialize};

use super::io_error;
use super::seed::make_private;

/// How long a sync waits for another one of the same sandbox.
const LOCK_WAIT: Duration = Duration::from_secs(120);

/// The kept state of one mirror, in `mirrors/<id>/`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Mirror {
    /// What both sides last agreed on.
    pub(super) base: Manifest,
    pub(super) local: Cache,
    pub(super) remote: RemoteCache,
    /// Conflicts that were told already, as path and the sandbox's content.
    #[serde(default)]
    pub(super) told: BTreeSet<(String, String)>,
}

/// Contents in the sandbox by path and stamp.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RemoteCache {
    /// The sandbox's own clock when the listing was made, in seconds.
    pub(super) taken: i64,
    pub(super) files: BTreeMap<String, (String, String)>,
}

impl Mirror {
    /// Notes what a new mirror starts from.
    pub(super) fn create(folder: &Path, scan: Scan) -> Result<()> {
        make_private(folder)?;
        Self { base: scan.manifest, local: scan.cache, ..Self::default() }.save(folder)
    }

    pub(super) fn load(folder: &Path) -> Result<Self> {
        let path = folder.join("state.json");
        let bytes = std::fs::read(&path)
            .map_err(|source| io_error("the state of the mirror cannot be read", source))?;
        serde_json::from_slice(&bytes).map_err(|source| {
            Error::new(
                ErrorKind::StoreFailed,
                format!("{} is not readable as a mirror's state", path.display()),
            )
            .with_source(source)
        })
    }

    /// Whole or not at all.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        let failed = |source| io_error("the state of the mirror cannot be written", source);
        let bytes = serde_json::to_vec(self).map_err(|source| {
            Error::new(ErrorKind::Internal, "the state of a mirror cannot be written as JSON")
                .with_source(source)
        })?;
        let unfinished = folder.join("state.json.new");
        let mut file = private_file(&unfinished).map_err(failed)?;
        file.write_all(&bytes).map_err(failed)?;
        std::fs::rename(&unfinished, folder.join("state.json")).map_err(failed)
    }
}

/// A new file for its owner alone.
pub(super) fn private_file(path: &Path) -> std::io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Held while a sync runs; gone with the process, however that ends.
pub(super) struct Lock {
    _file: File,
    pub(super) folder: PathBuf,
}

impl Lock {
    /// Waits for its turn. Blocks.
    pub(super) fn take(folder: &Path) -> Result<Self> {
        let failed = |source| io_error("the mirror cannot be locked", source);
        make_private(folder)?;
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join("lock"))
            .map_err(failed)?;
        let since = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file, folder: folder.to_owned() }),
                Err(rustix::io::Errno::WOULDBLOCK) if since.elapsed() < LOCK_WAIT => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let why = "another sync of this sandbox has been running for too long";
                    return Err(Error::new(ErrorKind::Conflict, why).with_hint("try again when it has ended"));
                }
                Err(error) => return Err(failed(error.into())),
            }
        }
    }
}
