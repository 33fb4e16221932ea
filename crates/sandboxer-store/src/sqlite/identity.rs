//! Which file the store is, beside its name.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sandboxer_core::{Error, ErrorKind, Retry};

use super::fault::{Attempt, from_io};

/// The file that was opened. One that is removed or replaced under a process goes on to work for that process alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        let metadata = std::fs::metadata(path).map_err(|error| from_io(error, "reading", path))?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Whether the file of that name is still the one that was opened.
    pub(super) fn check(self, path: &Path) -> Attempt<()> {
        if Self::of(path).is_ok_and(|found| found == self) {
            return Ok(());
        }
        let message = format!("the store {} was removed or replaced while it was open", path.display());
        Err(Error::new(ErrorKind::StoreFailed, message)
            .with_retry(Retry::Permanent)
            .with_hint("end the processes that use it and put the file back; what they write now is lost")
            .into())
    }
}
