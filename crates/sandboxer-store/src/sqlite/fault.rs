//! What can go wrong inside SQLite, and the core's error for it.

use std::path::Path;

use rusqlite::types::FromSqlError;
use sandboxer_core::{Dur, Error, ErrorKind, Retry};

/// An error on its way out of an operation: SQLite's, which still lacks the path, or one of ours.
#[derive(Debug)]
pub(super) enum Fault {
    Sql(rusqlite::Error),
    Own(Error),
}

pub(super) type Attempt<T> = Result<T, Fault>;

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// A column of another type than was written.
impl From<FromSqlError> for Fault {
    fn from(error: FromSqlError) -> Self {
        Self::internal(format!("a stored value cannot be read: {error}"))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Own(error)
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        let message = "a stored document cannot be read or written";
        Self::Own(Error::new(ErrorKind::StoreFailed, message).with_retry(Retry::Permanent).with_source(error))
    }
}

impl Fault {
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::Own(Error::new(ErrorKind::Internal, message))
    }

    /// The connection may be left in the middle of something and should not be used again.
    pub(super) fn spoils_connection(&self) -> bool {
        matches!(self, Self::Sql(error) if !is_constraint(error))
    }

    pub(super) fn into_error(self, operation: &'static str, path: &Path) -> Error {
        match self {
            Self::Own(error) => error,
            Self::Sql(error) => translate(error, path).with_context("operation", operation),
        }
    }
}

/// SQLite's extended result code, if it was SQLite that failed.
pub(super) fn code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

/// Another connection is in the way; trying again helps.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    // SQLITE_BUSY and SQLITE_LOCKED in all their forms.
    code(error).is_some_and(|code| matches!(code & 0xff, 5 | 6))
}

/// There is no such file.
pub(super) fn is_absent(error: &rusqlite::Error) -> bool {
    // SQLITE_CANTOPEN.
    code(error).is_some_and(|code| code & 0xff == 14)
}

/// A rule of the schema.
pub(super) fn is_constraint(error: &rusqlite::Error) -> bool {
    // SQLITE_CONSTRAINT.
    code(error).is_some_and(|code| code & 0xff == 19)
}

/// SQLITE_BUSY.
const BUSY: i32 = 5;
/// When it is worth asking a busy store again.
const BUSY_AGAIN: Dur = Dur::from_secs(5);

/// SQLite's result code → kind, retry, message and hint. One row per thing that a user can do something about.
fn classify(code: i32) -> (ErrorKind, Retry, &'static str, &'static str) {
    use ErrorKind::{Conflict, NoSpace, StoreBusy, StoreFailed};
    use Retry::{Permanent, Temporary};
    // IOERR_SHMSIZE and IOERR_SHMMAP: the shared-memory file beside the store could not grow.
    if matches!(code, 4874 | 5386) {
        return (
            NoSpace,
            Temporary,
            "there is no room beside the store",
            "free some space on its file system",
        );
    }
    match code & 0xff {
        5 | 6 | 15 => (
            StoreBusy,
            Temporary,
            "the store stayed locked by another process",
            "look for a process that holds it: a backup, a database browser or one that is stopped",
        ),
        8 => {
            (StoreFailed, Permanent, "the store cannot be written", "its file and directory must be writable")
        }
        10 => (
            StoreFailed,
            Temporary,
            "reading or writing the store failed",
            "check the disk and its file system",
        ),
        11 | 26 => (
            StoreFailed,
            Permanent,
            "the store is damaged or not a store",
            "move the file away to start with an empty one, or restore it from a backup",
        ),
        13 => (NoSpace, Temporary, "the disk of the store is full", "free some space on its file system"),
        14 => (
            StoreFailed,
            Permanent,
            "the store cannot be opened",
            "its directory must exist and be writable for this user",
        ),
        19 => (Conflict, Permanent, "the store has this already", "use another id or key"),
        _ => (StoreFailed, Temporary, "the store failed", "`sandboxer doctor` tells more about this machine"),
    }
}

/// Another process or another caller held the right to write for too long.
pub(super) fn locked(path: &Path) -> Error {
    told(classify(BUSY), path)
}

fn told((kind, retry, message, hint): (ErrorKind, Retry, &str, &str), path: &Path) -> Error {
    let error = Error::new(kind, format!("{message}: {}", path.display()))
        .with_retry(retry)
        .with_hint(hint)
        .with_context("path", path.display().to_string());
    if kind == ErrorKind::StoreBusy { error.with_retry_after(BUSY_AGAIN) } else { error }
}

fn translate(error: rusqlite::Error, path: &Path) -> Error {
    told(classify(code(&error).unwrap_or(0)), path).with_source(error)
}

/// An error of the file system around the store.
pub(super) fn from_io(error: std::io::Error, doing: &str, path: &Path) -> Error {
    let (kind, hint) = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            (ErrorKind::NoSpace, "free some space on its file system")
        }
        std::io::ErrorKind::PermissionDenied => {
            (ErrorKind::StoreFailed, "choose a directory that this user may write")
        }
        std::io::ErrorKind::ReadOnlyFilesystem => (
            ErrorKind::StoreFailed,
            "its file system is read-only: mount it for writing, or choose another directory",
        ),
        _ => (ErrorKind::StoreFailed, "choose another directory for the store"),
    };
    let retry = if kind == ErrorKind::NoSpace { Retry::Temporary } else { Retry::Permanent };
    Error::new(kind, format!("{doing} {} is not possible", path.display()))
        .with_retry(retry)
        .with_hint(hint)
        .with_context("path", path.display().to_string())
        .with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_kind() {
        for (code, kind) in [
            (5, ErrorKind::StoreBusy),
            (517, ErrorKind::StoreBusy),
            (11, ErrorKind::StoreFailed),
            (13, ErrorKind::NoSpace),
            (4874, ErrorKind::NoSpace),
            (778, ErrorKind::StoreFailed),
            (2067, ErrorKind::Conflict),
        ] {
            assert_eq!(classify(code).0, kind, "{code}");
        }
    }
}
