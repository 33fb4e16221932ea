//! When sandboxes ended that nobody had asked to end: an empty file for each, whose time is the moment.
//!
//! The supervisor writes it before it removes the rest; it goes with the stop that somebody asks for later.

use crate::dirs::RuntimeDirs;
use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Nobody has asked about an end for this long: nobody will.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

fn folder(dirs: &RuntimeDirs) -> PathBuf {
    dirs.root.join("ended")
}

/// It ends now. That this fails is no reason not to end.
pub(crate) fn note(dirs: &RuntimeDirs, id: &str) {
    let write = || {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder(dirs).join(id))?;
        // A sandbox of the same name may have ended before.
        file.set_modified(SystemTime::now())
    };
    if let Err(error) = write()
        && error.kind() == ErrorKind::NotFound
        && DirBuilder::new().mode(0o700).create(folder(dirs)).is_ok()
    {
        let _ = write();
    }
}

/// When it ended, where nobody had asked for it.
pub(crate) fn when(dirs: &RuntimeDirs, id: &str) -> Option<SystemTime> {
    folder(dirs).join(id).symlink_metadata().ok()?.modified().ok()
}

pub(crate) fn forget(dirs: &RuntimeDirs, id: &str) {
    let _ = std::fs::remove_file(folder(dirs).join(id));
}

/// Removes what is older than anybody cares for.
pub(crate) fn forget_old(dirs: &RuntimeDirs) {
    for entry in std::fs::read_dir(folder(dirs)).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|data| data.modified());
        if modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > KEPT)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
