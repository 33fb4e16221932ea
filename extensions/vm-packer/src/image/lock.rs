//! A lock between processes: a file that one holds. It goes with its holder, also with one that is killed.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use sandboxer_core::Result;

use crate::files::failed;

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// The lock, unless somebody has it.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Self>> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|source| failed("opened", path, source))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(failed("locked", path, errno.into())),
        }
        // Whoever had it may have removed the file, and somebody else may have a new one by now.
        let same = match (file.metadata(), path.metadata()) {
            (Ok(mine), Ok(there)) => (mine.dev(), mine.ino()) == (there.dev(), there.ino()),
            _ => false,
        };
        Ok(same.then_some(Self { _file: file }))
    }

    /// Waits for it; `waiting` is called once if somebody has it.
    pub(crate) async fn take(path: &Path, waiting: impl FnOnce()) -> Result<Self> {
        let mut waiting = Some(waiting);
        loop {
            if let Some(lock) = Self::try_take(path)? {
                return Ok(lock);
            }
            if let Some(tell) = waiting.take() {
                tell();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
